"""A stage is claimed, prepared and started; it may have to wait, and goes on when answered."""

from __future__ import annotations

import pytest

from guards.exceptions import InvalidInput
from pipelines.exceptions import MissionRefused, StageMustWait
from pipelines.models import Pipeline, Stage
from pipelines.services import claims, execution, waking
from pipelines.types import RunResult
from teams.models import Event
from tests.pipelines.built_ins import Asking, answering, asking_pipeline, installed
from tests.pipelines.factories import body

pytestmark = pytest.mark.django_db

WAITS = RunResult(ok=False, waiting=True, usage={"turns": 2, "usd": 0.25})
DONE = RunResult(ok=True, output=b'"done"', usage={"turns": 1, "usd": 0.5})


def run(pipeline: Pipeline) -> Pipeline:
    return execution.run(pipeline_id=pipeline.pk)


def kinds(stage: Stage) -> list[str]:
    found = Event.objects.filter(subject_type="pipelines.stage", subject_id=str(stage.pk))
    return list(found.order_by("seq").values_list("kind", flat=True))


@pytest.mark.one_database
def test_a_stage_is_claimed_then_prepared_then_started(desk):
    seen = []
    pipeline, (stage, _) = asking_pipeline(desk)

    def look(job):
        row = Stage.objects.get(pk=job.stage)
        seen.append((row.status, row.attempt, row.started_at is not None))

    with installed(Asking(preparing=look, running=look)) as command:
        assert run(pipeline).status == "completed"

    assert seen == [("claimed", 1, False), ("running", 1, True)]
    job = command.jobs[0]
    assert (job.stage, job.attempt, job.pipeline) == (stage.pk, 1, str(pipeline.pk))
    assert job.directory == job.workplace
    assert job.directory.name == str(pipeline.pk)
    assert kinds(stage) == ["stage.claimed", "stage.running", "stage.succeeded"]


@pytest.mark.one_database
def test_a_stage_that_must_wait_is_due_again_and_wakes_nobody_for_it(desk, server):
    pipeline, (stage, _) = asking_pipeline(desk)
    other, _ = asking_pipeline(desk)
    Pipeline.objects.filter(pk=other.pk).update(status="queued")

    def must_wait(job):
        raise StageMustWait("another mission changes the same files")

    with installed(Asking(preparing=must_wait)):
        assert run(pipeline).status == "queued"
        assert run(other).status == "queued"
        stage.refresh_from_db()
        assert (stage.status, stage.attempt, stage.lease_until) == ("pending", 0, None)
        assert kinds(stage) == ["stage.claimed", "stage.pending"]
        assert "same files" in str(
            Event.objects.filter(subject_id=str(pipeline.pk)).latest("seq").facts
        )
        assert claims.whose_turn_has_come(begun=False) == []
    with installed(Asking()):
        assert run(pipeline).status == "completed"
    stage.refresh_from_db()
    assert stage.attempt == 1


@pytest.mark.one_database
def test_what_prepare_refuses_fails_the_stage_before_anything_started(desk, server):
    pipeline, (stage, _) = asking_pipeline(desk)

    def refuse(job):
        raise MissionRefused("today's money is spent", rule="daily-budget")

    with installed(Asking(preparing=refuse)) as command:
        assert run(pipeline).status == "failed"

    stage.refresh_from_db()
    assert (stage.status, stage.started_at) == ("failed", None)
    assert stage.error == "daily-budget: today's money is spent"
    assert command.jobs == []
    assert "daily-budget" not in body(server.sent[0].payload)


def test_a_stage_that_waits_holds_no_worker_and_goes_on_as_the_same_attempt(desk, server):
    pipeline, (stage, _) = asking_pipeline(desk)

    with installed(Asking([WAITS, DONE])) as command:
        waiting = run(pipeline)
        stage.refresh_from_db()
        assert (waiting.status, waiting.claimed_by, waiting.lease_until) == (
            "waiting_approval", "", None
        )  # fmt: skip
        assert (stage.status, stage.lease_until) == ("waiting_approval", None)
        assert run(pipeline).status == "waiting_approval"
        assert len(command.jobs) == 1

        assert waking.go_on(stage_id=stage.pk, actor="operator:ada")
        assert not waking.go_on(stage_id=stage.pk, actor="operator:ada")
        assert run(pipeline).status == "completed"

    assert [job.attempt for job in command.jobs] == [1, 1]
    stage.refresh_from_db()
    assert stage.usage == {"turns": 3, "usd": 0.75}
    assert body(server.sent[0].payload) == "done\n"


@pytest.mark.one_database
def test_an_answer_that_came_before_the_stage_waited_is_not_lost(desk):
    pipeline, (stage, _) = asking_pipeline(desk)
    early = []

    def answered_meanwhile(job):
        early.append(waking.go_on(stage_id=job.stage, actor="operator:ada"))

    with (
        answering(lambda stage_id: stage_id == stage.pk),
        installed(Asking([WAITS, DONE], running=answered_meanwhile)),
    ):
        assert run(pipeline).status == "queued"
        assert early == [False]
        assert run(pipeline).status == "completed"


def test_the_sweep_lets_go_on_what_was_answered_while_nobody_listened(desk):
    pipeline, (stage, _) = asking_pipeline(desk)
    with installed(Asking([WAITS])):
        run(pipeline)

    assert waking.take_answers() == 0
    with answering(lambda stage_id: stage_id == stage.pk):
        assert waking.take_answers() == 1
        assert waking.take_answers() == 0
    pipeline.refresh_from_db()
    assert pipeline.status == "queued"


@pytest.mark.one_database
def test_a_reply_that_waits_never_goes_on_by_this_way(desk):
    pipeline, (_, reply) = asking_pipeline(desk)
    Stage.objects.filter(pk=reply.pk).update(status="waiting_approval")
    Pipeline.objects.filter(pk=pipeline.pk).update(status="waiting_approval")

    with answering(lambda stage_id: True):
        assert not waking.go_on(stage_id=reply.pk, actor="system")
        assert waking.take_answers() == 0


@pytest.mark.one_database
def test_an_incomplete_end_fails_the_pipeline_and_says_what_it_is(desk, server):
    pipeline, (stage, later, _) = asking_pipeline(desk, "ask", "after")

    with installed(Asking([RunResult(ok=False, incomplete=True, error="no result came in")])):
        assert run(pipeline).status == "failed"

    stage.refresh_from_db()
    later.refresh_from_db()
    assert (stage.status, later.status) == ("incomplete", "cancelled")
    assert "no result came in" in stage.error
    assert len(server.sent) == 1


@pytest.mark.one_database
def test_a_built_in_that_is_not_installed_fails_its_stage(desk):
    pipeline, (stage, _) = asking_pipeline(desk, "unheard-of")

    assert run(pipeline).status == "failed"
    stage.refresh_from_db()
    assert "unheard-of is not installed" in stage.error


def test_what_a_built_in_adopts_is_one_with_its_end(desk, server):
    pipeline, (_stage, reply) = asking_pipeline(desk)

    def plan(pipeline_id, stage_id, output):
        Stage.objects.filter(pk=reply.pk).update(position=3)
        Stage.objects.create(
            pipeline_id=pipeline_id, position=2, command="second", runner="built-in"
        )

    with installed(Asking(adopting=plan)), installed(Asking(name="second")) as second:
        assert run(pipeline).status == "completed"

    assert len(second.jobs) == 1
    assert list(pipeline.stages.values_list("command", "status")) == [
        ("ask", "succeeded"), ("second", "succeeded"), ("reply", "succeeded")
    ]  # fmt: skip


@pytest.mark.one_database
def test_when_adopting_is_refused_the_stage_fails_and_nothing_of_it_stays(desk):
    pipeline, (stage, _) = asking_pipeline(desk)

    def refuse(pipeline_id, stage_id, output):
        Stage.objects.create(pipeline_id=pipeline_id, position=9, command="x", runner="built-in")
        raise InvalidInput("no command of that name")

    with installed(Asking(adopting=refuse)):
        assert run(pipeline).status == "failed"

    stage.refresh_from_db()
    assert (stage.status, stage.error) == ("failed", "no command of that name")
    assert not pipeline.stages.filter(position=9).exists()


@pytest.mark.one_database
def test_a_pipeline_whose_write_set_was_just_planned_takes_its_turn_again(desk):
    pipeline, _stages = asking_pipeline(desk)

    def plan(pipeline_id, stage_id, output):
        Pipeline.objects.filter(pk=pipeline_id).update(write_set=["house:docs"])

    with installed(Asking(adopting=plan)):
        assert run(pipeline).status == "queued"
        assert run(pipeline).status == "completed"


@pytest.mark.one_database
@pytest.mark.parametrize("limit", [31, 32])
def test_a_stage_that_would_never_fit_fails_instead_of_waiting_for_ever(
    desk, server, settings, limit
):
    """Also where not a moment is left beside it. The second half is the control: there it runs."""
    settings.QUEUE_TIMEOUT = limit
    pipeline, (stage, _) = asking_pipeline(desk)
    with installed(Asking()):
        assert run(pipeline).status == "failed"
    stage.refresh_from_db()
    assert (stage.status, stage.started_at) == ("failed", None)
    assert "no-time" in stage.error

    settings.QUEUE_TIMEOUT = 40
    with installed(Asking()):
        assert run(asking_pipeline(desk)[0]).status == "completed"

"""A pipeline is cancelled wherever it stands: what it ran is killed, its requester is told once."""

from __future__ import annotations

import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.utils import timezone

from guards import process
from guards.exceptions import AlreadyDecided, Conflict
from guards.services.units import unit_of_work
from guards.types import Subject
from mail.models import Outbound
from mail.services import outbound
from pipelines.models import Mission, Pipeline, Stage
from pipelines.services import (
    claims,
    control,
    execution,
    intake,
    recovery,
    replies,
    rules,
    transitions,
    waking,
)
from pipelines.signals import stage_given_up, stage_starting
from pipelines.types import RunResult
from teams.models import Event
from tests.databases import exit_of, forked, shared
from tests.pipelines.built_ins import Asking, asking_pipeline, installed
from tests.pipelines.factories import OPERATOR, Desk, body, script

pytestmark = pytest.mark.django_db

MARK = "COUNTERSIGN_PIPELINE"


def planned(desk: Desk, text: str) -> Pipeline:
    pipeline = intake.take_in(message_id=desk.message(text).pk)
    assert pipeline is not None
    return pipeline


def statuses(pipeline: Pipeline) -> dict[str, str]:
    return dict(pipeline.stages.values_list("command", "status"))


def until(condition) -> None:
    """Wait for something that another process does; the test's own time limit ends it."""
    while not condition():
        time.sleep(0.02)


@pytest.fixture
def family(owner, scripts, tmp_path: Path) -> Path:
    """A command whose program leaves two children behind and waits; the file of their pids."""
    pids = tmp_path / "pids"
    lines = f'sleep 300 & echo $! >> "{pids}"\nsleep 300 & echo $! >> "{pids}"\necho $$ >> "{pids}"'
    program = script(scripts, "family", f"{lines}\nwait")
    owner.install("family", binary=program, timeout="5m")
    owner.install("greet", fixed_args=["hello"])
    calls = [{"command": "family"}, {"command": "greet"}]
    rules.save_rule(name="family", match="family", calls=calls, by=OPERATOR)
    return pids


@contextmanager
def worker_inside(pipeline: Pipeline, pids: Path):
    """A worker of another process is in the middle of the stage; the references of its children."""
    worker = forked(lambda: execution.run(pipeline_id=pipeline.pk) and None)
    until(lambda: pids.exists() and len(pids.read_text().split()) == 3)
    children = [process.reference_of(int(pid)) for pid in pids.read_text().split()]
    assert not any(process.is_dead(child) for child in children)  # the control: they do run
    yield children
    assert exit_of(worker) == 0


@pytest.mark.one_database
@pytest.mark.django_db(transaction=True)
@pytest.mark.invariant(16)
@pytest.mark.fault("sister-34", "runner-07")
def test_cancelling_kills_the_whole_group_and_the_worker_records_nothing_more(
    desk, server, family, tmp_path
):
    bystander = subprocess.Popen(["sleep", "60"], env={MARK: "another"})
    with shared(tmp_path):
        pipeline = planned(desk, "family")
        with worker_inside(pipeline, family) as children:
            assert control.cancel(pipeline_id=pipeline.pk, by=OPERATOR).status == "cancelled"
            said = Event.objects.count()
            until(lambda: all(process.is_dead(child) for child in children))

        assert bystander.poll() is None
        bystander.kill()
        bystander.wait()
        assert Event.objects.count() == said
        assert statuses(pipeline) == {
            "family": "cancelled", "greet": "cancelled", "reply": "succeeded"
        }  # fmt: skip
        stage = Stage.objects.get(command="family")
        assert (stage.exit_code, stage.lease_until) == (None, None)
        assert "operator:ada cancelled it" in stage.error
        assert [body(mail.payload) for mail in server.sent] == [replies.fixed_text(pipeline.pk)]
        assert Outbound.objects.count() == 1
        with pytest.raises(AlreadyDecided):
            control.cancel(pipeline_id=pipeline.pk, by=OPERATOR)


@pytest.mark.one_database
@pytest.mark.django_db(transaction=True)
@pytest.mark.invariant(16)
def test_a_worker_whose_pipeline_is_cancelled_from_another_host_ends_its_own_children(
    desk, family, tmp_path, monkeypatch
):
    """Only the row is moved here, as another host would: its kill does not reach this one."""
    with shared(tmp_path):
        pipeline = planned(desk, "family")
        with worker_inside(pipeline, family) as children:
            with unit_of_work():
                assert transitions.move_pipeline(
                    pipeline.pk,
                    Pipeline.Status.CANCELLED,
                    old=[Pipeline.Status.RUNNING],
                    changes={"fence": 2, "lease_until": None},
                    facts={"reason": "elsewhere"},
                )
            until(lambda: all(process.is_dead(child) for child in children))

        assert Pipeline.objects.get().status == "cancelled"
        assert Stage.objects.get(command="family").exit_code is None


def test_a_claim_that_holds_is_not_taken_away_and_a_row_out_of_sight_proves_nothing(desk, family):
    pipeline = planned(desk, "family")
    claim = claims.claim_pipeline(pipeline.pk)
    assert claim is not None

    assert claims.is_held(claim)
    assert not claims.is_taken_away(claim)
    claims.hand_back(claim, reason="later")
    later = claims.claim_pipeline(pipeline.pk)
    assert later is not None
    assert not claims.is_held(claim)
    assert not claims.is_taken_away(claim)  # another worker's children must not be killed
    control.cancel(pipeline_id=pipeline.pk, by=OPERATOR)
    assert claims.is_taken_away(later)


@pytest.mark.one_database
def test_cancelling_before_the_process_starts_is_noticed_when_it_has_ended(desk, server, owner):
    owner.install("greet", fixed_args=["hello"])
    rules.save_rule(name="greet", match="greet", calls=[{"command": "greet"}], by=OPERATOR)

    def cancel(pipeline_id, **facts):
        control.cancel(pipeline_id=pipeline_id, by=OPERATOR)

    stage_starting.connect(cancel)
    try:
        pipeline = execution.run(pipeline_id=planned(desk, "greet").pk)
    finally:
        stage_starting.disconnect(cancel)

    assert pipeline.status == "cancelled"
    assert Stage.objects.get(command="greet").output == ""
    assert [body(mail.payload) for mail in server.sent] == [replies.fixed_text(pipeline.pk)]


def test_cancelling_what_waits_for_a_person_takes_the_question_back(desk, server):
    given_up = []

    def note(stage_id, pipeline_id, reason, actor, **facts):
        given_up.append((stage_id, actor))

    pipeline, (stage, _) = asking_pipeline(desk)
    with installed(Asking([RunResult(ok=False, waiting=True)])):
        assert execution.run(pipeline_id=pipeline.pk).status == "waiting_approval"
    stage_given_up.connect(note)
    try:
        control.cancel(pipeline_id=pipeline.pk, by=OPERATOR)
    finally:
        stage_given_up.disconnect(note)

    pipeline.refresh_from_db()
    assert (pipeline.status, statuses(pipeline)["ask"]) == ("cancelled", "cancelled")
    assert given_up == [(stage.pk, "operator:ada")]
    assert not waking.go_on(stage_id=stage.pk, actor="operator:ada")
    assert len(server.sent) == 1


@pytest.mark.one_database
@pytest.mark.fault("W16")
@pytest.mark.parametrize("ending", ["cancelled", "interrupted"])
def test_the_mission_of_a_stage_that_was_answered_ends_before_it_goes_on(desk, server, ending):
    """Open for ever, it would keep its write set from every other pipeline."""
    pipeline, (stage, _) = asking_pipeline(desk, write_set=["house:docs"])
    with installed(Asking([RunResult(ok=False, waiting=True)])):
        execution.run(pipeline_id=pipeline.pk)
    Mission.objects.create(
        pipeline=pipeline, stage=stage, contract={}, write_set=["house:docs"], max_usd=1,
        worker="claude", evaluator="system", command="ask",
    )  # fmt: skip
    assert waking.go_on(stage_id=stage.pk, actor="operator:ada")
    following, _ = asking_pipeline(desk, write_set=["house:docs/a"])
    assert claims.claim_pipeline(following.pk) is None  # the control: the set is kept

    if ending == "cancelled":
        control.cancel(pipeline_id=pipeline.pk, by=OPERATOR)
    else:
        claims.claim_pipeline(pipeline.pk)
        Pipeline.objects.filter(pk=pipeline.pk).update(lease_until=timezone.now())
        recovery.recover()

    stage.refresh_from_db()
    assert (stage.status, Mission.objects.get().status) == (ending, "abandoned")
    assert claims.claim_pipeline(following.pk) is not None


@pytest.mark.one_database
@pytest.mark.parametrize("status", ["sending", "queued"])
def test_a_pipeline_whose_reply_is_on_its_way_cannot_be_cancelled(desk, server, status):
    pipeline, (_, reply) = asking_pipeline(desk)
    claim = claims.claim_pipeline(pipeline.pk)
    assert claim is not None
    Stage.objects.filter(pk=reply.pk).update(
        status="running", lease_until=claims.lease_end(), **claim.mine
    )
    draft = outbound.draft_reply(
        message_id=pipeline.message_id,
        text="the result",
        origin=Subject("pipelines.pipeline", str(pipeline.pk)),
        executes=True,
    )
    Outbound.objects.filter(pk=draft.pk).update(status=status)

    with pytest.raises(Conflict, match="on its way"):
        control.cancel(pipeline_id=pipeline.pk, by=OPERATOR)

    Outbound.objects.filter(pk=draft.pk).update(status="draft")
    with pytest.raises(Conflict, match="being written"):
        control.cancel(pipeline_id=pipeline.pk, by=OPERATOR)

    past = timezone.now()  # the control: nobody writes it any more
    Pipeline.objects.filter(pk=pipeline.pk).update(lease_until=past)
    assert control.cancel(pipeline_id=pipeline.pk, by=OPERATOR).status == "cancelled"
    assert [body(mail.payload) for mail in server.sent] == [replies.fixed_text(pipeline.pk)]
    reply.refresh_from_db()
    assert reply.status == "succeeded"


@pytest.mark.one_database
def test_a_cancelled_pipeline_lets_the_next_one_have_its_turn(desk, settings):
    settings.PIPELINE_CONCURRENCY = 1
    first, _ = asking_pipeline(desk)
    second, _ = asking_pipeline(desk)
    assert claims.claim_pipeline(first.pk) is not None
    assert claims.claim_pipeline(second.pk) is None

    control.cancel(pipeline_id=first.pk, by=OPERATOR)

    assert claims.claim_pipeline(second.pk) is not None

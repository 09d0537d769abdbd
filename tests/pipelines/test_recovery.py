"""What a crash left is called interrupted, its requester is told once, and nothing runs again."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta

import pytest
from django.utils import timezone

from guards import process
from guards.types import Subject
from mail.models import Outbound
from mail.services import outbound
from pipelines.exceptions import ClaimLost
from pipelines.models import Pipeline, Stage
from pipelines.services import claims, execution, intake, recovery, replies, rules, stages
from pipelines.services.claims import Claim
from pipelines.signals import stage_returned, stage_starting
from teams.models import Event
from tests.databases import shared
from tests.pipelines.factories import OPERATOR, Desk, body

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def command(owner) -> None:
    owner.install("greet", fixed_args=["hello"])
    rules.save_rule(name="greet", match="greet", calls=[{"command": "greet"}], by=OPERATOR)


def dead_process() -> str:
    """The reference of a process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    reference = process.reference_of(child.pid)
    child.kill()
    child.wait()
    return reference


def planned(desk: Desk) -> Pipeline:
    pipeline = intake.take_in(message_id=desk.message("greet").pk)
    assert pipeline is not None
    return pipeline


def abandoned(desk: Desk, holder: str, *, lease: timedelta = timedelta(minutes=1)) -> Pipeline:
    """A pipeline in the middle of its work stage, held by that process."""
    pipeline = planned(desk)
    held = {"claimed_by": holder, "fence": 1, "lease_until": timezone.now() + lease}
    Pipeline.objects.filter(pk=pipeline.pk).update(status="running", **held)
    Stage.objects.filter(pipeline=pipeline, command="greet").update(
        status="running", started_at=timezone.now(), attempt=1, **held
    )
    return pipeline


def statuses(pipeline: Pipeline) -> dict[str, str]:
    return dict(pipeline.stages.values_list("command", "status"))


def test_a_pipeline_of_a_dead_worker_is_interrupted_and_its_requester_told_once(desk, server):
    pipeline = abandoned(desk, dead_process())

    assert recovery.recover() == 1
    assert recovery.recover() == 0

    pipeline.refresh_from_db()
    assert (pipeline.status, pipeline.notice_due) == ("interrupted", False)
    assert statuses(pipeline) == {"greet": "interrupted", "reply": "succeeded"}
    assert [body(mail.payload) for mail in server.sent] == [replies.fixed_text(pipeline.pk)]
    assert "ended while it ran" in pipeline.error
    assert execution.run(pipeline_id=pipeline.pk).status == "interrupted"
    assert Stage.objects.get(command="greet").attempt == 1


@pytest.mark.one_database
def test_a_lease_that_is_past_is_enough(desk, server):
    pipeline = abandoned(desk, "elsewhere:boot:1:1", lease=timedelta(seconds=-1))

    assert recovery.recover() == 1
    pipeline.refresh_from_db()
    assert pipeline.status == "interrupted"


@pytest.mark.one_database
def test_a_worker_that_lives_or_may_live_is_left_alone(desk, server):
    abandoned(desk, process.this_process())
    abandoned(desk, "elsewhere:boot:1:1")

    assert recovery.recover() == 0
    assert set(Pipeline.objects.values_list("status", flat=True)) == {"running"}


@pytest.mark.one_database
def test_a_worker_taken_for_dead_can_record_nothing_more(desk, server):
    def take_over(pipeline_id, **facts):
        Pipeline.objects.filter(pk=pipeline_id).update(lease_until=timezone.now())
        recovery.recover()

    stage_starting.connect(take_over)
    try:
        pipeline = execution.run(pipeline_id=planned(desk).pk)
    finally:
        stage_starting.disconnect(take_over)

    assert pipeline.status == "interrupted"
    assert statuses(pipeline) == {"greet": "interrupted", "reply": "succeeded"}
    assert [body(mail.payload) for mail in server.sent] == [replies.fixed_text(pipeline.pk)]


@pytest.mark.one_database
def test_a_notice_that_was_cut_off_is_sent_by_the_next_recovery(desk, server):
    pipeline = abandoned(desk, dead_process())
    assert recovery.interrupt(pipeline=Pipeline.objects.get(pk=pipeline.pk))
    assert server.sent == []

    recovery.recover()
    recovery.recover()

    assert len(server.sent) == 1


@pytest.mark.one_database
def test_a_draft_of_the_result_takes_the_fixed_text(desk, server):
    pipeline = abandoned(desk, dead_process())
    outbound.draft_reply(
        message_id=pipeline.message_id,
        text="the result",
        origin=Subject("pipelines.pipeline", str(pipeline.pk)),
        executes=True,
    )

    recovery.recover()

    assert Outbound.objects.count() == 1
    assert [body(mail.payload) for mail in server.sent] == [replies.fixed_text(pipeline.pk)]


@pytest.mark.one_database
@pytest.mark.parametrize("status", ["sending", "held", "queued"])
def test_a_reply_on_its_way_is_left_to_its_effect(desk, server, status):
    pipeline = abandoned(desk, dead_process())
    draft = outbound.draft_reply(
        message_id=pipeline.message_id,
        text="the result",
        origin=Subject("pipelines.pipeline", str(pipeline.pk)),
        executes=True,
    )
    Outbound.objects.filter(pk=draft.pk).update(status=status)
    following = intake.take_in(message_id=desk.message("greet").pk)
    assert following is not None
    assert claims.claim_pipeline(following.pk) is None  # the control: one at a time

    assert recovery.recover() == 0
    pipeline.refresh_from_db()
    assert pipeline.status == "running"
    assert server.sent == []
    assert claims.claim_pipeline(following.pk) is not None  # nothing of it runs: it keeps no place


@pytest.mark.one_database
def test_a_transient_failure_keeps_the_notice_due(desk, server, monkeypatch):
    pipeline = abandoned(desk, dead_process())
    recovery.interrupt(pipeline=Pipeline.objects.get(pk=pipeline.pk))
    desk.account.smtp_host = ""
    desk.account.save()

    recovery.recover()

    pipeline.refresh_from_db()
    assert not pipeline.notice_due  # permanent: nobody can ever be told from this account
    assert server.sent == []


@pytest.mark.one_database
def test_interrupting_is_one_event_for_each_row(desk, server):
    pipeline = abandoned(desk, dead_process())
    before = Event.objects.count()

    recovery.interrupt(pipeline=Pipeline.objects.get(pk=pipeline.pk))

    kinds = Event.objects.order_by("seq").values_list("kind", flat=True)[before:]
    assert sorted(kinds) == ["pipeline.interrupted", "stage.interrupted"]


@pytest.mark.one_database
@pytest.mark.invariant(16)
@pytest.mark.fault("sister-34")
def test_what_a_dead_workers_stage_left_running_is_ended(desk, server, tmp_path):
    pipeline = abandoned(desk, dead_process())
    bystander = subprocess.Popen(["sleep", "60"], env={"COUNTERSIGN_PIPELINE": "another"})
    orphan = subprocess.Popen(
        ["sh", "-c", "sleep 60 & sleep 60"],
        env={"PATH": os.environ["PATH"], "COUNTERSIGN_PIPELINE": str(pipeline.pk)},
        start_new_session=True,
    )
    try:
        recovery.recover()

        assert orphan.wait(timeout=10) == -9
        assert process.end_marked("COUNTERSIGN_PIPELINE", str(pipeline.pk)) == 0
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_claim_raises_the_fence_and_holds_a_lease(desk):
    pipeline = planned(desk)

    claim = claims.claim_pipeline(pipeline.pk)

    assert claim == Claim(pipeline.pk, process.this_process(), 1)
    assert claims.claim_pipeline(pipeline.pk) is None
    pipeline.refresh_from_db()
    assert pipeline.lease_until > timezone.now()


def test_a_lease_is_renewed_only_under_the_same_claim(desk):
    pipeline = planned(desk)
    claim = claims.claim_pipeline(pipeline.pk)
    assert claim is not None
    near = timezone.now() + timedelta(seconds=1)
    Pipeline.objects.update(lease_until=near)

    assert not claims.renew(Claim(pipeline.pk, claim.holder, claim.fence + 1))
    assert not claims.renew(Claim(pipeline.pk, "other", claim.fence))
    pipeline.refresh_from_db()
    assert pipeline.lease_until == near
    assert claims.renew(claim)
    pipeline.refresh_from_db()
    assert pipeline.lease_until > near + timedelta(seconds=30)


@pytest.mark.one_database
@pytest.mark.django_db(transaction=True)
def test_the_lease_is_renewed_while_a_stage_runs(desk, owner, server, monkeypatch, tmp_path):
    monkeypatch.setattr(claims, "RENEW_EVERY", timedelta(seconds=0.2))
    monkeypatch.setattr(claims, "LEASE", timedelta(seconds=20))
    owner.install("slow", binary="sleep", fixed_args=["0.5"])
    rules.save_rule(name="slow", match="slow", calls=[{"command": "slow"}], by=OPERATOR)
    seen = []

    def look(pipeline_id, **facts):
        seen.append(Pipeline.objects.get(pk=pipeline_id).lease_until)

    stage_starting.connect(look)
    stage_returned.connect(look)
    try:
        with shared(tmp_path):
            pipeline = intake.take_in(message_id=desk.message("slow").pk)
            assert pipeline is not None
            execution.run(pipeline_id=pipeline.pk)
    finally:
        stage_starting.disconnect(look)
        stage_returned.disconnect(look)
    assert seen[1] > seen[0]


def test_no_more_run_at_once_than_the_setting_allows(desk, settings):
    settings.PIPELINE_CONCURRENCY = 1
    first, second = planned(desk), planned(desk)
    assert claims.claim_pipeline(first.pk) is not None

    assert claims.claim_pipeline(second.pk) is None
    second.refresh_from_db()
    assert second.status == "queued"
    settings.PIPELINE_CONCURRENCY = 2
    assert claims.claim_pipeline(second.pk) is not None


@pytest.mark.fault("sister-52", "W16")
def test_pipelines_whose_write_sets_overlap_wait_for_each_other(desk, settings):
    settings.PIPELINE_CONCURRENCY = 3
    first, same, other = planned(desk), planned(desk), planned(desk)
    for pipeline, paths in ((first, ["x:docs"]), (same, ["x:docs/a"]), (other, ["y:docs"])):
        Pipeline.objects.filter(pk=pipeline.pk).update(write_set=paths)

    assert claims.claim_pipeline(first.pk) is not None
    assert claims.claim_pipeline(same.pk) is None
    assert claims.claim_pipeline(other.pk) is not None
    same.refresh_from_db()
    assert same.status == "queued"
    assert Event.objects.filter(kind="pipeline.queued").count() == 1


def test_the_oldest_that_could_run_is_woken_not_one_that_must_wait(desk, settings):
    settings.PIPELINE_CONCURRENCY = 2
    first, same, other = planned(desk), planned(desk), planned(desk)
    for pipeline, paths in ((first, ["x:docs"]), (same, ["x:docs/a"]), (other, ["y:docs"])):
        Pipeline.objects.filter(pk=pipeline.pk).update(write_set=paths)

    assert claims.whose_turn_has_come() == [first.pk, other.pk]
    assert claims.claim_pipeline(first.pk) is not None
    assert claims.whose_turn_has_come() == [other.pk]
    assert claims.claim_pipeline(other.pk) is not None
    assert claims.whose_turn_has_come() == []


def test_a_move_under_a_lost_claim_rolls_back_with_everything(desk):
    pipeline = planned(desk)
    claim = claims.claim_pipeline(pipeline.pk)
    assert claim is not None
    Pipeline.objects.update(fence=9)

    with pytest.raises(ClaimLost):
        stages.claim(claim, Stage.objects.get(command="greet"))

    assert Stage.objects.get(command="greet").status == "pending"


@pytest.mark.one_database
def test_the_holder_is_this_very_process(desk):
    claim = claims.claim_pipeline(planned(desk).pk)

    assert claim is not None
    assert f":{os.getpid()}:" in claim.holder
    assert not process.is_dead(claim.holder)

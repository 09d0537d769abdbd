"""The fate of the one reply settles its stage and its pipeline, in the same transaction."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.utils import timezone
from django_q.models import OrmQ
from django_q.signing import SignedPackage

from approvals.models import Approval, Effect, Hold, Job
from approvals.services import approvals, effects, holds
from guards.exceptions import AlreadyDecided
from guards.models import Identity
from mail.gateways.base import SendOutcome, SubmissionResult
from mail.models import Outbound
from mail.services import outbound
from pipelines.models import Pipeline
from pipelines.services import control, execution, intake, recovery, replies, rules
from teams.models import Event
from tests.pipelines.factories import OPERATOR, Desk, PipelineFactory, StageFactory, body, script

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def command(owner, scripts) -> None:
    owner.install("greet", fixed_args=["hello"])
    owner.install("broken", binary=script(scripts, "broken", "exit 1"))
    for name in ("greet", "broken"):
        rules.save_rule(name=name, match=name, calls=[{"command": name}], by=OPERATOR)


def run(desk: Desk, text: str = "greet") -> Pipeline:
    pipeline = intake.take_in(message_id=desk.message(text).pk)
    assert pipeline is not None
    return execution.run(pipeline_id=pipeline.pk)


def hold_replies(desk: Desk) -> None:
    Identity.objects.filter(pk=desk.identity.pk).update(reply_policy=Identity.ReplyPolicy.APPROVE)


def reply_status(pipeline: Pipeline) -> str:
    return str(pipeline.stages.get(command="reply").status)


def approve(pipeline: Pipeline) -> None:
    reply = replies.reply_of(pipeline.pk)
    assert reply is not None
    approval = holds.open_for_review(hold_id=reply.hold_id, by=OPERATOR)
    effect = approvals.approve(
        approval_id=approval.pk, by=OPERATOR, via=Approval.Via.CONSOLE, digest=approval.digest
    )
    from approvals.tasks import dispatch_effect

    dispatch_effect(str(effect.pk))


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("outcome", "pipeline_status", "stage_status"),
    [
        (SendOutcome.ACCEPTED, "completed", "succeeded"),
        (SendOutcome.FAILED, "failed", "failed"),
        (SendOutcome.UNKNOWN, "interrupted", "interrupted"),
    ],
)
def test_the_outcome_of_the_send_is_the_outcome_of_the_pipeline(
    desk, server, outcome, pipeline_status, stage_status
):
    if outcome is not SendOutcome.ACCEPTED:
        server.next_result = SubmissionResult(outcome, "told-so")

    pipeline = run(desk)

    assert (pipeline.status, reply_status(pipeline)) == (pipeline_status, stage_status)
    assert server.submissions == 1
    assert not pipeline.notice_due


@pytest.mark.one_database
@pytest.mark.invariant(20)
def test_after_an_unknown_reply_no_other_mail_follows(desk, server):
    from pipelines.tasks import sweep

    server.next_result = SubmissionResult(SendOutcome.UNKNOWN, "connection-lost-after-data")
    pipeline = run(desk)

    sweep()
    execution.run(pipeline_id=pipeline.pk)

    assert server.submissions == 1
    assert Outbound.objects.count() == 1


def test_under_the_policy_approve_the_reply_waits_and_then_leaves_once(desk, server):
    hold_replies(desk)

    pipeline = run(desk)

    assert (pipeline.status, reply_status(pipeline)) == ("waiting_approval", "waiting_approval")
    assert server.submissions == 0
    assert pipeline.lease_until is None
    approve(pipeline)
    pipeline.refresh_from_db()
    assert (pipeline.status, reply_status(pipeline)) == ("completed", "succeeded")
    assert body(server.sent[0].payload) == "hello\n"


@pytest.mark.one_database
def test_failure_text_passes_the_policy_too_and_the_pipeline_ends_failed(desk, server):
    hold_replies(desk)

    pipeline = run(desk, "broken")

    assert pipeline.status == "waiting_approval"
    approve(pipeline)
    pipeline.refresh_from_db()
    assert (pipeline.status, reply_status(pipeline)) == ("failed", "succeeded")
    assert body(server.sent[0].payload) == replies.fixed_text(pipeline.pk)


@pytest.mark.one_database
@pytest.mark.parametrize("kept", ["a lost worker", "a person who gave it up"])
def test_an_approved_reply_that_a_worker_lost_is_no_withdrawal(
    desk, server, kept, django_capture_on_commit_callbacks
):
    hold_replies(desk)
    pipeline = run(desk)
    reply = replies.reply_of(pipeline.pk)
    approval = holds.open_for_review(hold_id=reply.hold_id, by=OPERATOR)
    effect = approvals.approve(
        approval_id=approval.pk, by=OPERATOR, via=Approval.Via.CONSOLE, digest=approval.digest
    )

    if kept == "a lost worker":
        past = timezone.now() - timedelta(minutes=1)
        Job.objects.filter(pk=effect.job_id).update(
            holder="elsewhere:b:1:1", fence=1, attempts=1, claimed_at=past, deadline=past
        )
        with django_capture_on_commit_callbacks(execute=True):
            assert effects.reconcile() == 1
        tasks = [SignedPackage.loads(row.payload)["func"] for row in OrmQ.objects.all()]
        assert "pipelines.tasks.sweep" in tasks  # the requester hears of it at once
    else:
        effects.cancel(effect_id=effect.pk, by=OPERATOR, reason="on second thought")

    pipeline.refresh_from_db()
    lost = kept == "a lost worker"
    assert pipeline.status == ("interrupted" if lost else "cancelled")
    assert pipeline.error == (
        "the reply was given up before its contact: deadline-passed" if lost else "withdrawn"
    )
    recovery.recover()
    assert Hold.objects.filter(state=Hold.State.WAITING).count() == (1 if lost else 0)
    assert server.submissions == 0


def test_a_rejected_reply_cancels_the_pipeline(desk, server):
    hold_replies(desk)
    pipeline = run(desk)
    hold = Hold.objects.get()
    approval = holds.open_for_review(hold_id=hold.pk, by=OPERATOR)

    approvals.reject(
        approval_id=approval.pk, by=OPERATOR, via=Approval.Via.CONSOLE, reason="not today"
    )

    pipeline.refresh_from_db()
    assert (pipeline.status, reply_status(pipeline)) == ("cancelled", "cancelled")
    assert server.submissions == 0
    assert Effect.objects.count() == 0


@pytest.mark.one_database
def test_a_waiting_pipeline_takes_no_turn_from_others(desk, server):
    hold_replies(desk)
    run(desk)

    assert run(desk).status == "waiting_approval"


@pytest.mark.one_database
def test_a_reply_above_the_hourly_cap_waits_and_holds_up_nothing(desk, server, settings):
    settings.AUTO_REPLIES_PER_IDENTITY_PER_HOUR = 1
    run(desk)

    waiting = run(desk)

    assert waiting.status == "running"
    assert waiting.lease_until is None
    assert replies.reply_of(waiting.pk).status == "queued"
    from pipelines.services import recovery

    assert recovery.recover() == 0
    third = run(desk)
    assert third.stages.get(command="greet").status == "succeeded"
    settings.AUTO_REPLIES_PER_IDENTITY_PER_HOUR = 10
    outbound.release_queued()
    waiting.refresh_from_db()
    assert waiting.status == "completed"
    assert len(server.sent) == 3


@pytest.mark.one_database
def test_a_reply_that_may_not_be_written_fails_the_pipeline_and_says_why(desk, server):
    desk.account.smtp_host = ""
    desk.account.save()

    pipeline = run(desk)

    assert (pipeline.status, reply_status(pipeline)) == ("failed", "failed")
    assert "no SMTP host" in pipeline.error


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is\n"),
        ("line\n", "line\n"),
        ({"b": 1, "a": ["é"]}, '{\n  "b": 1,\n  "a": [\n    "é"\n  ]\n}\n'),
        (None, "null\n"),
    ],
)
def test_a_result_is_text_as_it_is_or_readable_json(value, text):
    assert replies.text_of(value) == text


@pytest.mark.one_database
def test_a_long_result_is_cut_and_says_so():
    text = replies.text_of("x" * 200_000)

    assert len(text) < replies.MAX_TEXT + 100
    assert "cut here: 200000 characters" in text


@pytest.mark.one_database
def test_the_fixed_text_tells_nothing_but_the_reference():
    pipeline = PipelineFactory()

    assert replies.fixed_text(pipeline.pk) == (
        f"This request could not be completed. Reference: pipeline-{pipeline.pk}\n"
    )


@pytest.mark.one_database
def test_mail_of_other_origins_moves_no_pipeline(desk):
    pipeline = PipelineFactory(status="running", lease_until="2030-01-01T00:00:00Z")
    StageFactory(pipeline=pipeline)
    message = Outbound(origin_type="operator", origin_id=str(pipeline.pk), status="accepted")

    replies.settle(message=message)

    pipeline.refresh_from_db()
    assert pipeline.status == "running"


@pytest.mark.one_database
def test_the_events_of_a_pipeline_hold_no_body(desk, server):
    run(desk)

    told = json.dumps(list(Event.objects.values_list("facts", flat=True)))
    assert "hello" not in told


@pytest.mark.one_database
def test_a_due_pipeline_can_be_cancelled_and_is_answered(desk, server):
    pipeline = intake.take_in(message_id=desk.message("greet").pk)
    assert pipeline is not None

    control.cancel(pipeline_id=pipeline.pk, by=OPERATOR)

    pipeline.refresh_from_db()
    assert (pipeline.status, reply_status(pipeline)) == ("cancelled", "succeeded")
    assert pipeline.stages.get(command="greet").status == "cancelled"
    assert body(server.sent[0].payload) == replies.fixed_text(pipeline.pk)
    assert execution.run(pipeline_id=pipeline.pk).status == "cancelled"
    with pytest.raises(AlreadyDecided):
        control.cancel(pipeline_id=pipeline.pk, by=OPERATOR)


@pytest.mark.one_database
def test_a_waiting_pipeline_can_be_cancelled_and_its_reply_is_withdrawn(desk, server):
    hold_replies(desk)
    pipeline = run(desk)

    assert control.cancel(pipeline_id=pipeline.pk, by=OPERATOR).status == "cancelled"
    assert server.submissions == 0
    assert Hold.objects.get().state == "withdrawn"

"""`send`: one message per stage, to somebody who may be written to, and its fate is the stage's."""

from __future__ import annotations

import time
from email import message_from_bytes
from email.policy import default
from pathlib import Path

import pytest

from approvals.models import Approval, Effect, Hold
from approvals.services import approvals, effects, holds
from approvals.signals import held
from guards.models import Identity, Permission
from guards.services.units import unit_of_work
from mail.gateways.base import SendOutcome, SubmissionResult
from mail.models import Outbound
from pipelines import registry
from pipelines.models import Pipeline, Stage
from pipelines.services import control, execution, intake, recovery, replies, rules, sending, waking
from pipelines.types import Job
from tests.databases import exit_of, forked, shared
from tests.guards.factories import ContactFactory, PermissionFactory
from tests.pipelines.factories import OPERATOR, Desk, PipelineFactory, StageFactory, script

pytestmark = pytest.mark.django_db

BOB = "bob@example.net"


@pytest.fixture(autouse=True)
def pipelines_directory(settings, tmp_path) -> None:
    settings.PIPELINES_DIR = tmp_path / "pipelines"


@pytest.fixture
def bob(desk: Desk) -> Permission:
    """Somebody whom the agent may write to."""
    return PermissionFactory(
        identity=desk.identity, contact=ContactFactory(address=BOB), read=False, write=True
    )


def begin(desk: Desk, owner, *before: str, **args: str) -> Pipeline:
    """A pipeline that says hello, does what is in between, and sends the pipe."""
    owner.install("greet", fixed_args=["hello bob"])
    call = {"command": "send", "args": {"to": BOB, "subject": "For you", **args}}
    calls = [{"command": "greet"}, *({"command": name} for name in before), call]
    rules.save_rule(name="all", match="please", calls=calls, by=OPERATOR)
    pipeline = intake.take_in(message_id=desk.message("please do it").pk)
    assert pipeline is not None
    return pipeline


def run(desk: Desk, owner, *before: str, **args: str) -> Pipeline:
    return execution.run(pipeline_id=begin(desk, owner, *before, **args).pk)


def stage_of(pipeline: Pipeline) -> Stage:
    return pipeline.stages.get(command="send")


def hold_mail(desk: Desk) -> None:
    Identity.objects.filter(pk=desk.identity.pk).update(reply_policy=Identity.ReplyPolicy.APPROVE)


def let_go(desk: Desk) -> None:
    Identity.objects.filter(pk=desk.identity.pk).update(reply_policy=Identity.ReplyPolicy.AUTO)


def message_of(pipeline: Pipeline) -> Outbound:
    return Outbound.objects.get(origin_type="pipelines.send", origin_id=str(stage_of(pipeline).pk))


def approve(message: Outbound) -> None:
    approval = holds.open_for_review(hold_id=message.hold_id, by=OPERATOR)
    effect = approvals.approve(
        approval_id=approval.pk, by=OPERATOR, via=Approval.Via.CONSOLE, digest=approval.digest
    )
    effects.dispatch(effect_id=effect.pk)


@pytest.mark.one_database
def test_the_pipe_leaves_and_goes_on_to_the_reply(desk, owner, server, bob):
    pipeline = run(desk, owner)

    assert pipeline.status == "completed", pipeline.error
    sent, answer = server.sent
    letter = message_from_bytes(sent.payload, policy=default)
    assert sent.recipients == (BOB,)
    assert (letter["Subject"], letter["Auto-Submitted"]) == ("For you", "auto-generated")
    assert letter["In-Reply-To"] is None
    assert letter.get_content().strip() == "hello bob"
    assert answer.recipients == (desk.requester.email,)
    assert b"hello bob" in answer.payload
    assert stage_of(pipeline).argv == [["send", f"--to={BOB}", "--subject=For you"]]


@pytest.mark.one_database
def test_nobody_is_written_to_who_does_not_hold_w(desk, owner, server):
    PermissionFactory(
        identity=desk.identity, contact=ContactFactory(address=BOB), read=True, write=False
    )

    pipeline = run(desk, owner)

    assert stage_of(pipeline).error.startswith("no-write: ")
    assert (pipeline.status, len(server.sent)) == ("failed", 1)
    assert b"could not be completed" in server.sent[0].payload
    assert not Outbound.objects.filter(origin_type="pipelines.send").exists()


@pytest.mark.one_database
@pytest.mark.fault("sister-24", "send-15")
@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({"subject": "a\rBcc: eve@example.org"}, "header-injection"),
        ({"subject": "a\nBcc: eve@example.org"}, "header-injection"),
        ({"to": f"{BOB}, eve@example.org"}, "is not one plain address"),
        ({"to": f"{BOB}\r\nBcc: eve@example.org"}, "header-injection"),
    ],
)
def test_no_argument_becomes_another_header_or_recipient(desk, owner, server, bob, args, reason):
    pipeline = run(desk, owner, **args)

    assert reason in stage_of(pipeline).error
    assert [sent.recipients for sent in server.sent] == [(desk.requester.email,)]


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("outcome", "sentence"),
    [
        (SendOutcome.FAILED, "did not leave"),
        (SendOutcome.UNKNOWN, "nobody can tell"),
    ],
)
def test_a_mail_that_did_not_certainly_leave_fails_the_stage(
    desk, owner, server, bob, outcome, sentence
):
    server.next_result = SubmissionResult(outcome, "told-so")

    pipeline = run(desk, owner)

    assert sentence in stage_of(pipeline).error
    assert (stage_of(pipeline).status, pipeline.status) == ("failed", "failed")


@pytest.mark.one_database
@pytest.mark.fault("send-01", "send-05")
def test_a_stage_that_runs_again_never_sends_a_second_mail(desk, owner, server, bob):
    pipeline = run(desk, owner)
    stage = stage_of(pipeline)
    job = Job(registry.built_in("send").spec, stage.args, b"", str(pipeline.pk), stage=stage.pk)
    before = server.submissions

    assert sending.carry_out(job).ok
    assert server.submissions == before


@pytest.mark.one_database
def test_what_a_crash_left_as_a_draft_is_taken_up_and_not_written_again(desk, owner, server, bob):
    pipeline = begin(desk, owner)
    stage = stage_of(pipeline)
    job = Job(registry.built_in("send").spec, stage.args, b"", str(pipeline.pk), stage=stage.pk)
    draft = sending._drafted(job)

    assert sending.carry_out(job).ok
    assert message_of(pipeline).pk == draft.pk
    assert server.submissions == 1


def test_under_the_policy_approve_the_stage_waits_and_goes_on_when_it_left(
    desk, owner, server, bob
):
    hold_mail(desk)
    pipeline = run(desk, owner)
    assert (pipeline.status, stage_of(pipeline).status) == ("waiting_approval", "waiting_approval")
    assert (pipeline.claimed_by, server.submissions) == ("", 0)

    let_go(desk)
    approve(message_of(pipeline))
    pipeline.refresh_from_db()
    assert (pipeline.status, stage_of(pipeline).status) == ("queued", "pending")
    pipeline = execution.run(pipeline_id=pipeline.pk)

    assert (pipeline.status, stage_of(pipeline).status) == ("completed", "succeeded")
    assert [sent.recipients for sent in server.sent] == [(BOB,), (desk.requester.email,)]


@pytest.mark.one_database
def test_a_no_fails_the_stage_and_the_requester_is_told(desk, owner, server, bob):
    hold_mail(desk)
    pipeline = run(desk, owner)
    approval = holds.open_for_review(hold_id=message_of(pipeline).hold_id, by=OPERATOR)

    let_go(desk)
    approvals.reject(approval_id=approval.pk, by=OPERATOR, via="console", reason="not to Bob")
    pipeline = execution.run(pipeline_id=pipeline.pk)

    assert "a person did not allow the mail" in stage_of(pipeline).error
    assert pipeline.status == "failed"
    assert [sent.recipients for sent in server.sent] == [(desk.requester.email,)]


@pytest.mark.one_database
def test_an_answer_that_came_before_the_stage_waited_is_not_lost(desk, owner, server, bob):
    hold_mail(desk)
    pipeline = run(desk, owner)
    let_go(desk)
    approve(message_of(pipeline))
    Stage.objects.filter(pk=stage_of(pipeline).pk).update(status="waiting_approval")
    Pipeline.objects.filter(pk=pipeline.pk).update(status="waiting_approval")

    assert waking.take_answers() == 1
    assert execution.run(pipeline_id=pipeline.pk).status == "completed"
    assert server.submissions == 2


@pytest.mark.one_database
def test_above_the_hourly_cap_the_stage_waits_its_turn(desk, owner, server, bob, settings):
    from mail.services import outbound

    settings.AUTO_REPLIES_PER_IDENTITY_PER_HOUR = 0
    pipeline = run(desk, owner)
    assert (pipeline.status, message_of(pipeline).status) == ("waiting_approval", "queued")

    settings.AUTO_REPLIES_PER_IDENTITY_PER_HOUR = 5
    outbound.release_queued()
    assert execution.run(pipeline_id=pipeline.pk).status == "completed"


@pytest.mark.one_database
def test_a_cancelled_pipeline_takes_its_waiting_mail_back(desk, owner, server, bob):
    hold_mail(desk)
    pipeline = run(desk, owner)
    message = message_of(pipeline)

    control.cancel(pipeline_id=pipeline.pk, by=OPERATOR)

    message.refresh_from_db()
    assert (message.status, message.reason) == ("cancelled", "withdrawn")
    assert Hold.objects.get(pk=message.hold_id).state == Hold.State.WITHDRAWN
    assert server.submissions == 0


@pytest.mark.one_database
def test_a_crash_between_the_hold_and_the_record_leaves_no_mail_that_could_leave(
    desk, owner, server, bob
):
    hold_mail(desk)
    pipeline = run(desk, owner)
    message = message_of(pipeline)
    lost = {"claimed_by": "a worker that is gone", "lease_until": None}
    Pipeline.objects.filter(pk=pipeline.pk).update(status="running", **lost)
    Stage.objects.filter(pk=stage_of(pipeline).pk).update(
        status="running", lease_until=message.created_at
    )

    assert recovery.recover() == 1

    message.refresh_from_db()
    assert message.status == "cancelled"
    assert stage_of(pipeline).status == "interrupted"


@pytest.mark.one_database
def test_the_pipes_files_go_along_and_a_changed_one_does_not(desk, owner, server, bob, scripts):
    made = script(
        scripts, "made", 'printf png > c.png; printf \'{"data": {}, "files": [{"path": "c.png"}]}\''
    )
    spoil = script(scripts, "spoil", "printf gnp > c.png")  # as long as before
    owner.install("make", binary=made, files=True, output_schema={"type": "object"})
    owner.install("spoil", binary=spoil, mode="passthrough", output_schema=...)

    good = run(desk, owner, "make")
    bad = run(desk, owner, "make", "spoil")

    letter = message_from_bytes(server.sent[0].payload, policy=default)
    assert [part.get_filename() for part in letter.iter_attachments()] == ["c.png"]
    assert good.status == "completed", good.error
    refused = bad.stages.exclude(command="reply").get(status="failed")
    assert refused.error.startswith("file-changed: ")


@pytest.mark.one_database
def test_mail_of_other_origins_moves_no_stage(desk):
    stage = StageFactory(
        pipeline=PipelineFactory(status="waiting_approval"), status="waiting_approval"
    )
    other = Outbound(origin_type="operator", origin_id=str(stage.pk), status="accepted")

    sending.follow(message=other)

    stage.refresh_from_db()
    assert stage.status == "waiting_approval"
    assert not sending.is_settled(stage.pk)


@pytest.mark.one_database
def test_an_effect_is_all_that_ever_left(desk, owner, server, bob):
    pipeline = run(desk, owner)

    about = Effect.objects.filter(subject_id=str(message_of(pipeline).pk))
    assert about.get().phase == "accepted"


@pytest.mark.only_on("postgresql")  # elsewhere nothing locks a row
@pytest.mark.django_db(transaction=True)
def test_an_answer_and_a_cancellation_never_wait_for_each_other(
    desk, owner, server, bob, settings, tmp_path
):
    """Both lock the hold first: a deadlock would undo what the person has just decided."""
    locked, cancelling = tmp_path / "locked", tmp_path / "cancelling"
    with shared(tmp_path):
        hold_mail(desk)
        pipeline = run(desk, owner)
        let_go(desk)
        message = message_of(pipeline)

        def answer() -> None:
            with unit_of_work():
                Hold.objects.select_for_update().get(pk=message.hold_id)
                locked.touch()
                until(cancelling)
                time.sleep(0.2)  # the other has come as far as it can
                waking.go_on(stage_id=stage_of(pipeline).pk, actor="operator:ada")

        def cancel() -> None:
            until(locked)
            cancelling.touch()
            control.cancel(pipeline_id=pipeline.pk, by=OPERATOR)

        pids = [forked(answer), forked(cancel)]
        assert [exit_of(pid) for pid in pids] == [0, 0]
        assert Pipeline.objects.get().status == "cancelled"
        assert message_of(pipeline).status == "cancelled"


@pytest.mark.django_db(transaction=True)
def test_of_two_processes_that_have_one_mail_held_neither_breaks(desk, owner, bob, tmp_path):
    """Two sweeps tell the same requester: the second finds it done, and goes on with the rest."""
    opened, submitting = tmp_path / "opened", tmp_path / "submitting"
    with shared(tmp_path):
        hold_mail(desk)
        pipeline = begin(desk, owner)
        Pipeline.objects.filter(pk=pipeline.pk).update(status="interrupted", notice_due=True)

        def first() -> None:
            def wait(**facts) -> None:
                opened.touch()
                until(submitting)
                time.sleep(0.2)  # the other has come as far as it can

            held.connect(wait)
            replies.send_notice(pipeline)

        def second() -> None:
            until(opened)
            submitting.touch()
            recovery.recover()

        pids = [forked(first), forked(second)]
        assert [exit_of(pid) for pid in pids] == [0, 0]
        assert Hold.objects.get().state == "waiting"
        assert Outbound.objects.get().status == "held"
        assert not Pipeline.objects.get().notice_due


def until(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)

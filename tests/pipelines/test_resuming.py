"""An operator may have a pipeline go on, from a stage that may be repeated, and it answers anew."""

from __future__ import annotations

import subprocess
import sys
from uuid import uuid4

import pytest
from django.utils import timezone

from approvals.models import Hold
from guards import process
from guards.exceptions import CountersignError, NotFound
from guards.models import Identity
from mail.gateways.base import SendOutcome, SubmissionResult
from mail.models import Outbound
from mail.signals import outbound_changed
from pipelines import pipes
from pipelines.exceptions import CommandNotRunnable, ResumeRefused
from pipelines.models import Command, Pipeline, Stage
from pipelines.services import claims, control, execution, intake, recovery, replies, rules
from pipelines.signals import stage_starting
from pipelines.types import RunResult
from teams.models import Event
from tests.pipelines.built_ins import Asking, asking_pipeline, installed
from tests.pipelines.factories import OPERATOR, Desk, body, script

pytestmark = pytest.mark.django_db

#: What `wc -c` says of the pipe that `greet` hands on.
COUNTED = str(len(pipes.encode({"data": "hello\n", "files": []}))) + "\n"


@pytest.fixture(autouse=True)
def commands(owner) -> None:
    owner.install("greet", fixed_args=["hello"], repeatable=True)
    owner.install("shout", binary="wc", fixed_args=["-c"])
    calls = [{"command": "greet"}, {"command": "shout"}]
    rules.save_rule(name="greet", match="greet", calls=calls, by=OPERATOR)


def planned(desk: Desk) -> Pipeline:
    pipeline = intake.take_in(message_id=desk.message("greet").pk)
    assert pipeline is not None
    return pipeline


def dead_process() -> str:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    reference = process.reference_of(child.pid)
    child.kill()
    child.wait()
    return reference


def interrupted(desk: Desk, *, during: str = "greet") -> Pipeline:
    """A pipeline whose worker died while that stage ran; its requester was told."""
    pipeline = planned(desk)
    held = {"claimed_by": dead_process(), "fence": 1, "lease_until": timezone.now()}
    Pipeline.objects.filter(pk=pipeline.pk).update(status="running", **held)
    stage = Stage.objects.get(pipeline=pipeline, command=during)
    pipeline.stages.filter(position__lt=stage.position).update(status="succeeded", attempt=1)
    pipeline.stages.filter(pk=stage.pk).update(
        status="running", started_at=timezone.now(), attempt=1, **held
    )
    recovery.recover()
    pipeline.refresh_from_db()
    assert pipeline.status == "interrupted"
    return pipeline


def texts(server) -> list[str]:
    return [body(mail.payload) for mail in server.sent]


def refusal(pipeline: Pipeline) -> str | None:
    with pytest.raises(CountersignError) as caught:
        control.resume(pipeline_id=pipeline.pk, by=OPERATOR)
    return caught.value.rule


def test_it_goes_on_from_a_repeatable_stage_and_the_requester_gets_the_result(desk, server):
    pipeline = interrupted(desk)
    assert texts(server) == [replies.fixed_text(pipeline.pk)]

    resumed = control.resume(pipeline_id=pipeline.pk, by=OPERATOR)

    assert (resumed.status, resumed.resumptions, resumed.error) == ("queued", 1, "")
    assert execution.run(pipeline_id=pipeline.pk).status == "completed"
    assert texts(server) == [replies.fixed_text(pipeline.pk), COUNTED]
    assert Stage.objects.get(command="greet").attempt == 2
    assert Stage.objects.get(command="shout").attempt == 1
    assert set(Outbound.objects.values_list("origin_type", flat=True)) == {
        "pipelines.pipeline", "pipelines.resumption"
    }  # fmt: skip
    told = Event.objects.filter(kind="pipeline.resumed").get()
    assert (told.actor, told.facts["command"]) == ("operator:ada", "greet")


@pytest.mark.one_database
def test_a_stage_that_does_not_say_so_is_never_repeated(desk, server):
    pipeline = interrupted(desk, during="shout")

    assert refusal(pipeline) == "not-repeatable"

    pipeline.refresh_from_db()
    assert (pipeline.status, pipeline.resumptions) == ("interrupted", 0)
    assert Stage.objects.get(command="shout").status == "interrupted"


@pytest.mark.one_database
def test_what_the_signed_command_says_now_counts(desk, server, owner):
    pipeline = interrupted(desk)
    document = Command.objects.get(name="greet").document
    Command.objects.filter(name="greet").update(document={**document, "fixed_args": ["other"]})

    with pytest.raises(CommandNotRunnable):
        control.resume(pipeline_id=pipeline.pk, by=OPERATOR)

    Command.objects.filter(name="greet").update(document=document)
    assert control.resume(pipeline_id=pipeline.pk, by=OPERATOR).status == "queued"


@pytest.mark.one_database
def test_nothing_but_an_interruption_or_a_failure_worth_another_try_goes_on(desk, server):
    completed = planned(desk)
    execution.run(pipeline_id=completed.pk)
    assert refusal(completed) == "not-interrupted"
    assert refusal(planned(desk)) == "not-interrupted"
    nothing, stages = asking_pipeline(desk, status="failed")
    stages[0].delete()
    assert refusal(nothing) == "nothing-planned"
    with pytest.raises(NotFound):
        control.resume(pipeline_id=uuid4(), by=OPERATOR)


@pytest.mark.one_database
def test_a_failure_that_would_come_again_is_not_tried_again(desk, server, owner, scripts):
    owner.install("broken", binary=script(scripts, "broken", "exit 1"), repeatable=True)
    rules.save_rule(name="greet", match="greet", calls=[{"command": "broken"}], by=OPERATOR)
    pipeline = execution.run(pipeline_id=planned(desk).pk)

    assert pipeline.status == "failed"
    assert refusal(pipeline) == "not-retriable"


@pytest.mark.one_database
def test_a_failure_that_another_run_may_avoid_can_be_tried_again(desk, server):
    pipeline, (stage, _) = asking_pipeline(desk)
    again = RunResult(ok=False, error="too many turns", retriable=True, usage={"turns": 50})
    with installed(Asking([again, RunResult(ok=True, output=b'"done"')], repeatable=True)):
        assert execution.run(pipeline_id=pipeline.pk).status == "failed"

        control.resume(pipeline_id=pipeline.pk, by=OPERATOR)
        assert execution.run(pipeline_id=pipeline.pk).status == "completed"

    stage.refresh_from_db()
    assert (stage.attempt, stage.retriable, stage.usage) == (2, False, {"turns": 50})
    assert texts(server) == [replies.fixed_text(pipeline.pk), "done\n"]


@pytest.mark.one_database
def test_it_goes_on_once_for_each_word_and_may_be_interrupted_again(desk, server):
    pipeline = interrupted(desk)
    control.resume(pipeline_id=pipeline.pk, by=OPERATOR)
    assert refusal(pipeline) == "not-interrupted"
    assert claims.claim_pipeline(pipeline.pk) is not None
    Pipeline.objects.update(lease_until=timezone.now())
    recovery.recover()
    recovery.recover()

    fixed = replies.fixed_text(pipeline.pk)
    assert texts(server) == [fixed, fixed]
    control.resume(pipeline_id=pipeline.pk, by=OPERATOR)
    assert execution.run(pipeline_id=pipeline.pk).status == "completed"
    assert texts(server) == [fixed, fixed, COUNTED]


@pytest.mark.one_database
def test_the_fate_of_an_earlier_mail_settles_nothing_of_a_pipeline_that_goes_on(desk, server):
    pipeline = interrupted(desk)
    earlier = replies.reply_of(pipeline.pk)
    control.resume(pipeline_id=pipeline.pk, by=OPERATOR)

    earlier.status = "unknown"
    replies.settle(message=earlier)

    pipeline.refresh_from_db()
    assert pipeline.status == "queued"
    assert pipeline.stages.get(command="reply").status == "pending"


@pytest.mark.one_database
def test_a_fixed_text_that_still_waits_for_a_person_is_taken_back(desk, server):
    Identity.objects.update(reply_policy=Identity.ReplyPolicy.APPROVE)
    pipeline = interrupted(desk)
    assert Hold.objects.get().state == "waiting"

    control.resume(pipeline_id=pipeline.pk, by=OPERATOR)

    assert Hold.objects.get().state == "withdrawn"
    pipeline.refresh_from_db()
    assert pipeline.status == "queued"


@pytest.mark.one_database
def test_while_nobody_knows_whether_the_last_mail_left_nothing_goes_on(desk, server):
    server.next_result = SubmissionResult(SendOutcome.UNKNOWN, "cut-off")
    pipeline = interrupted(desk)

    assert refusal(pipeline) == "mail-unknown"

    effect = replies.reply_of(pipeline.pk).effect
    type(effect).objects.filter(pk=effect.pk).update(
        acknowledged_at=timezone.now(), acknowledged_by="operator:ada"
    )
    assert control.resume(pipeline_id=pipeline.pk, by=OPERATOR).status == "queued"


@pytest.mark.one_database
def test_when_all_work_is_done_only_the_answer_is_given_again(desk, server):
    pipeline = planned(desk)
    claim = claims.claim_pipeline(pipeline.pk)
    assert claim is not None
    pipeline.stages.exclude(command="reply").update(
        status="succeeded", attempt=1, started_at=timezone.now()
    )
    Pipeline.objects.update(pipe={"data": "the result", "files": []}, lease_until=timezone.now())
    recovery.recover()

    control.resume(pipeline_id=pipeline.pk, by=OPERATOR)

    assert execution.run(pipeline_id=pipeline.pk).status == "completed"
    assert texts(server) == [replies.fixed_text(pipeline.pk), "the result\n"]
    assert set(pipeline.stages.values_list("attempt", flat=True)) == {1}


@pytest.mark.one_database
def test_a_result_that_may_have_left_is_not_sent_again(desk, server):
    server.next_result = SubmissionResult(SendOutcome.UNKNOWN, "cut-off")
    pipeline = execution.run(pipeline_id=planned(desk).pk)
    assert pipeline.status == "interrupted"

    with pytest.raises(ResumeRefused):
        control.resume(pipeline_id=pipeline.pk, by=OPERATOR)
    assert refusal(pipeline) == "result-may-have-left"
    assert server.submissions == 1


@pytest.mark.one_database
def test_it_goes_on_with_the_pipe_that_the_stage_before_left(desk, server, owner):
    owner.install("count", binary="wc", fixed_args=["-c"], repeatable=True)
    calls = [{"command": "greet"}, {"command": "count"}]
    rules.save_rule(name="greet", match="greet", calls=calls, by=OPERATOR)
    pipeline = planned(desk)

    def die_in_the_second(stage_id, pipeline_id, **facts):
        if Stage.objects.get(pk=stage_id).command == "count":
            Pipeline.objects.filter(pk=pipeline_id).update(lease_until=timezone.now())
            recovery.recover()

    stage_starting.connect(die_in_the_second)
    try:
        assert execution.run(pipeline_id=pipeline.pk).status == "interrupted"
    finally:
        stage_starting.disconnect(die_in_the_second)
    control.resume(pipeline_id=pipeline.pk, by=OPERATOR)

    assert execution.run(pipeline_id=pipeline.pk).status == "completed"
    assert texts(server)[-1] == COUNTED
    assert dict(pipeline.stages.values_list("command", "attempt")) == {
        "greet": 1, "count": 2, "reply": 1
    }  # fmt: skip


@pytest.mark.one_database
def test_a_notice_that_was_due_is_not_sent_once_the_pipeline_goes_on(desk, server):
    pipeline = planned(desk)
    assert claims.claim_pipeline(pipeline.pk) is not None
    recovery.interrupt(pipeline=Pipeline.objects.get(pk=pipeline.pk))
    as_the_sweep_read_it = Pipeline.objects.select_related("identity").get(pk=pipeline.pk)
    assert as_the_sweep_read_it.notice_due

    control.resume(pipeline_id=pipeline.pk, by=OPERATOR)
    replies.send_notice(as_the_sweep_read_it)

    assert server.submissions == 0
    assert execution.run(pipeline_id=pipeline.pk).status == "completed"
    assert texts(server) == [COUNTED]


@pytest.mark.one_database
@pytest.mark.parametrize("drafted", [True, False], ids=["drafted before", "drafted after"])
def test_a_notice_that_has_not_left_yet_does_not_leave_once_the_pipeline_goes_on(
    desk, server, drafted
):
    """It would take the one contact of the request, and the result would fail."""
    pipeline = planned(desk)
    held = {"claimed_by": dead_process(), "fence": 1, "lease_until": timezone.now()}
    Pipeline.objects.filter(pk=pipeline.pk).update(status="running", **held)
    pipeline.refresh_from_db()
    recovery.interrupt(pipeline=pipeline)

    def resume(outbound, old, **facts):
        if (outbound.status, old) != ("draft", ""):
            return
        if drafted:
            control.resume(pipeline_id=pipeline.pk, by=OPERATOR)
        else:  # what another process has just done, that saw no draft
            Pipeline.objects.filter(pk=pipeline.pk).update(resumptions=1, notice_due=False)

    outbound_changed.connect(resume)
    try:
        replies.send_notice(Pipeline.objects.get(pk=pipeline.pk))
    finally:
        outbound_changed.disconnect(resume)

    assert server.sent == []
    if drafted:
        assert execution.run(pipeline_id=pipeline.pk).status == "completed"
        assert texts(server) == [COUNTED]

"""A pipeline carries its stages out in order, hands the pipe on, and answers once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from django.db import OperationalError
from django_q.models import OrmQ

from guards import process
from guards.signals import unit_closing
from mail.models import Outbound
from pipelines.models import Command, Pipeline, Stage
from pipelines.services import carrying, execution, intake, replies, rules
from pipelines.signals import stage_starting
from teams.models import Event
from tests.pipelines.factories import OPERATOR, Desk, body, script

pytestmark = pytest.mark.django_db


def run(desk: Desk, *calls: dict, text: str = "please do it") -> Pipeline:
    rules.save_rule(name="all", match="please", calls=list(calls), by=OPERATOR)
    pipeline = intake.take_in(message_id=desk.message(text).pk)
    assert pipeline is not None
    return execution.run(pipeline_id=pipeline.pk)


def stages(pipeline: Pipeline) -> list[tuple[str, str]]:
    return list(pipeline.stages.order_by("position").values_list("command", "status"))


def test_it_runs_two_commands_and_answers_with_the_result(desk, owner, server):
    owner.install("greet", fixed_args=["hello"], args=[{"name": "whom", "type": "string"}])
    owner.install("shout", binary="tr", fixed_args=["a-z", "A-Z"])

    pipeline = run(desk, {"command": "greet", "args": {"whom": "ada"}}, {"command": "shout"})

    assert pipeline.status == "completed", pipeline.error
    assert stages(pipeline) == [
        ("greet", "succeeded"), ("shout", "succeeded"), ("reply", "succeeded")
    ]  # fmt: skip
    assert len(server.sent) == 1
    assert b"HELLO --WHOM=ADA" in server.sent[0].payload
    assert server.sent[0].recipients == (desk.requester.email,)


@pytest.mark.one_database
def test_it_puts_the_pipe_on_standard_input(desk, owner, server):
    owner.install("echo-pipe", binary="cat", output_schema={"type": "object"})

    pipeline = run(desk, {"command": "echo-pipe"})

    assert pipeline.status == "completed", pipeline.error
    assert set(pipeline.pipe["data"]) == {"data", "files"}
    assert "please do it" in pipeline.pipe["data"]["data"]["text"]


@pytest.mark.one_database
@pytest.mark.fault("sister-27")
def test_a_passthrough_stage_leaves_the_pipe_as_it_is(desk, owner, server):
    owner.install("greet", fixed_args=["the result"])
    owner.install("notify", mode="passthrough", fixed_args=["ok"])

    pipeline = run(desk, {"command": "greet"}, {"command": "notify"})

    assert pipeline.pipe["data"] == "the result\n"
    assert pipeline.stages.get(command="notify").output == "ok\n"
    assert b"the result" in server.sent[0].payload


def test_each_start_and_end_is_on_record_as_one_event(desk, owner, server):
    owner.install("greet")

    pipeline = run(desk, {"command": "greet"})

    ids = [str(pk) for pk in pipeline.stages.values_list("pk", flat=True)]
    kinds = Event.objects.filter(subject_type="pipelines.stage", subject_id__in=ids)
    assert list(kinds.order_by("seq").values_list("kind", flat=True)) == [
        "stage.claimed", "stage.running", "stage.succeeded", "stage.running", "stage.succeeded"
    ]  # fmt: skip
    own = Event.objects.filter(subject_type="pipelines.pipeline", subject_id=str(pipeline.pk))
    assert list(own.order_by("seq").values_list("kind", flat=True)) == [
        "pipeline.planned", "pipeline.running", "pipeline.completed"
    ]  # fmt: skip


@pytest.mark.one_database
def test_a_stage_records_what_ran(desk, owner, server):
    owner.install("greet", fixed_args=["hello"])

    stage = run(desk, {"command": "greet"}).stages.get(command="greet")

    assert Path(stage.argv[0][0]).name in ("echo", "coreutils")
    assert stage.argv[0][1:] == ["hello"]
    assert (stage.exit_code, stage.attempt, stage.output_size) == (0, 1, 6)
    assert stage.started_at < stage.finished_at
    assert stage.lease_until is None


@pytest.mark.one_database
def test_a_failure_sends_the_fixed_text_and_runs_nothing_more(desk, owner, server, scripts):
    owner.install("break", binary=script(scripts, "break", "echo secret >&2; exit 3"))
    owner.install("greet")

    pipeline = run(desk, {"command": "break"}, {"command": "greet"})

    assert pipeline.status == "failed"
    assert stages(pipeline) == [
        ("break", "failed"), ("greet", "cancelled"), ("reply", "succeeded")
    ]  # fmt: skip
    stage = pipeline.stages.get(command="break")
    assert stage.exit_code == 3
    assert "secret" in stage.stderr
    assert "exit code 3" in pipeline.error
    payload = body(server.sent[0].payload)
    assert payload == (f"This request could not be completed. Reference: pipeline-{pipeline.pk}\n")


@pytest.mark.one_database
def test_reply_false_suppresses_only_the_success_text(desk, owner, server, scripts):
    owner.install("quiet", reply=False)

    assert run(desk, {"command": "quiet"}).status == "completed"
    assert server.sent == []
    assert Outbound.objects.count() == 0

    owner.install("broken", reply=False, binary=script(scripts, "broken", "exit 1"))
    assert run(desk, {"command": "broken"}, text="please now").status == "failed"
    assert len(server.sent) == 1


@pytest.mark.one_database
@pytest.mark.fault("sister-30")
def test_more_than_one_megabyte_of_output_fails_the_stage(desk, owner, server, scripts):
    owner.install("flood", binary=script(scripts, "flood", "exec yes"), timeout="20s")

    pipeline = run(desk, {"command": "flood"})

    assert pipeline.status == "failed"
    assert "1 MB" in pipeline.stages.get(command="flood").error


@pytest.mark.one_database
@pytest.mark.fault("sister-28", "sister-30")
def test_one_megabyte_exactly_goes_through_whole(desk, owner, server, scripts):
    """The control; and nothing on the way, through three programs, cuts it."""
    says = "printf '\"'; head -c 999998 /dev/zero | tr \"\\0\" x; printf '\"'"
    owner.install("full", binary=script(scripts, "full", says), output_schema=...)
    owner.install("count", steps=[{"binary": "cat"}, {"binary": "cat"}, counting()])

    pipeline = run(desk, {"command": "full"}, {"command": "count"})

    assert pipeline.status == "completed", pipeline.error
    assert pipeline.stages.get(command="full").output_size == 1_000_000
    assert int(body(server.sent[0].payload)) == 1_000_000 + len('{"data":,"files":[]}')


@pytest.mark.one_database
@pytest.mark.fault("sister-29")
def test_fast_steps_hand_on_everything_they_wrote(desk, owner, server):
    steps = [{"binary": "cat"}, {"binary": "tr", "fixed_args": ["-d", "{}"]}, counting()]
    owner.install("chain", steps=steps)

    pipeline = run(desk, {"command": "chain"})

    assert pipeline.status == "completed", pipeline.error
    assert int(pipeline.pipe["data"]) > 50
    assert len(pipeline.stages.get(command="chain").argv) == 3


@pytest.mark.one_database
def test_a_step_that_fails_fails_the_chain(desk, owner, server):
    owner.install("chain", steps=[{"binary": "false"}, {"binary": "cat"}])

    pipeline = run(desk, {"command": "chain"})

    assert pipeline.status == "failed"
    assert "exit code 1" in pipeline.error


@pytest.mark.one_database
def test_a_stage_past_its_own_timeout_is_ended_with_all_its_steps(desk, owner, server, scripts):
    """The time lies over the chain and is each command's own: the stage before takes longer."""
    slower = script(scripts, "slower", "sleep 1.2; echo done")
    owner.install("patient", binary=slower, timeout="30s")
    steps = [{"binary": "sleep", "fixed_args": ["61.5"]}, {"binary": "cat"}]
    owner.install("slow", steps=steps, timeout="1s")

    pipeline = run(desk, {"command": "patient"}, {"command": "slow"})

    assert stages(pipeline)[:2] == [("patient", "succeeded"), ("slow", "failed")]
    assert "longer than 1 seconds" in pipeline.error
    assert not process.end_marked("COUNTERSIGN_PIPELINE", str(pipeline.pk))


@pytest.mark.one_database
@pytest.mark.fault("sister-35")
def test_no_child_of_a_chain_sees_more_than_its_command_declares(desk, owner, server, monkeypatch):
    for name in ("ANTHROPIC_API_KEY", "SMTP_PASSWORD", "FIELD_KEYS"):
        monkeypatch.setenv(name, "of the house")
    monkeypatch.setenv("BIFF_TOKEN", "declared")
    secret = [{"name": "TOKEN", "secret": "env:BIFF_TOKEN"}]
    owner.install("show", binary="env", env_vars=secret)
    owner.install("chain", steps=[{"binary": "env"}, {"binary": "cat"}], env_vars=secret)

    for command in ("show", "chain"):
        shown = run(desk, {"command": command}).pipe["data"]
        assert "TOKEN=declared" in shown  # the control: what is declared does arrive
        assert "of the house" not in shown and "SECRET_KEY" not in shown
        names = {line.partition("=")[0] for line in shown.splitlines()}
        ours = {"COUNTERSIGN_PIPELINE", "COUNTERSIGN_DIRECTORY", "PATH", "HOME", "LANG"}
        assert names <= {"TOKEN", *ours}


@pytest.mark.one_database
def test_a_secret_that_does_not_resolve_fails_the_stage(desk, owner, server):
    owner.install("show", binary="env", env_vars=[{"name": "TOKEN", "secret": "env:NOT_THERE"}])

    pipeline = run(desk, {"command": "show"})

    assert pipeline.status == "failed"
    assert pipeline.stages.get(command="show").exit_code is None


@pytest.mark.one_database
def test_an_output_that_does_not_match_its_schema_fails_the_stage(desk, owner, server):
    owner.install("greet", fixed_args=['{"n": "5"}'], output_schema=number_schema())

    pipeline = run(desk, {"command": "greet"})

    assert pipeline.status == "failed"
    assert "n: '5' is not of type 'integer'" in pipeline.error


@pytest.mark.one_database
def test_a_passthrough_output_is_validated_too(desk, owner, server):
    owner.install(
        "greet", mode="passthrough", fixed_args=["no json"], output_schema=number_schema()
    )

    assert run(desk, {"command": "greet"}).status == "failed"


@pytest.mark.one_database
def test_a_claude_command_is_shown_and_fails_honestly_without_its_program(
    desk, owner, server, settings
):
    settings.CLAUDE_BINARY = "/nowhere/claude"
    document = {
        "schema": "command/1", "name": "think", "serial": 1, "prompt": "Think.",
        "budget": {"rounds": 1}, "tools": ["Read"],
    }  # fmt: skip
    from pipelines.services import commands

    assert commands.load_file(owner.write(document), by=OPERATOR).outcome == "loaded"
    assert Command.objects.get(name="think").runner == "claude"

    pipeline = run(desk, {"command": "think"})

    assert pipeline.status == "failed"
    assert "CLAUDE_BINARY names no program" in pipeline.error
    assert pipeline.stages.get(command="think").started_at is None


def test_a_second_run_of_an_ended_pipeline_does_nothing(desk, owner, server):
    owner.install("greet")
    pipeline = run(desk, {"command": "greet"})
    events = Event.objects.count()

    again = execution.run(pipeline_id=pipeline.pk)

    assert again.status == "completed"
    assert Event.objects.count() == events
    assert len(server.sent) == 1
    assert Stage.objects.filter(attempt__gt=1).count() == 0


@pytest.fixture
def hurry(monkeypatch):
    """From a stage's start on a task is as old as a test says, in seconds."""
    ages = {}
    clock = time.monotonic

    def age(stage_id, **facts):
        seconds = ages.get(Stage.objects.get(pk=stage_id).command, 0)
        monkeypatch.setattr(time, "monotonic", lambda: clock() + seconds)

    stage_starting.connect(age)
    yield ages
    stage_starting.disconnect(age)
    monkeypatch.setattr(time, "monotonic", clock)


@pytest.mark.one_database
def test_a_stage_that_does_not_fit_into_the_queues_time_waits_for_a_task_of_its_own(
    desk, owner, server, settings, hurry
):
    owner.install("greet", fixed_args=["first"])
    owner.install("shout", binary="tr", fixed_args=["a-z", "A-Z"])
    hurry["greet"] = settings.QUEUE_TIMEOUT - 59  # the command's half minute, a margin of as much

    pipeline = run(desk, {"command": "greet"}, {"command": "shout"})

    assert pipeline.status == "queued"
    assert stages(pipeline) == [
        ("greet", "succeeded"), ("shout", "pending"), ("reply", "pending")
    ]  # fmt: skip
    assert execution.run(pipeline_id=pipeline.pk).status == "completed"
    assert "FIRST" in body(server.sent[0].payload)


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("answer", "ran"), [("said\n", "echo said"), (None, "exit 1")], ids=["result", "fixed text"]
)
def test_a_reply_that_does_not_fit_into_the_queues_time_waits_for_a_task_of_its_own(
    desk, owner, server, scripts, settings, hurry, answer, ran
):
    """A mail server may take minutes: a worker that is killed meanwhile leaves an unknown mail."""
    owner.install("say", binary=script(scripts, "say", ran))
    hurry["say"] = settings.QUEUE_TIMEOUT - 170

    pipeline = run(desk, {"command": "say"})

    assert (pipeline.status, len(server.sent)) == ("queued", 0)
    execution.run_on(pipeline_id=pipeline.pk)
    text = answer or replies.fixed_text(pipeline.pk)
    assert [body(mail.payload) for mail in server.sent] == [text]
    assert Stage.objects.filter(command="say").get().attempt == 1

    hurry["say"] = settings.QUEUE_TIMEOUT - 190  # the control: time enough
    assert run(desk, {"command": "say"}).status in ("completed", "failed")


@pytest.mark.invariant(24)
def test_nothing_runs_whose_start_cannot_be_recorded(desk, owner, server, scripts, tmp_path):
    """Invariant 24; without the refusal the program runs, as the second half shows."""
    ran = tmp_path / "ran"
    owner.install("mark", binary=script(scripts, "mark", f'touch "{ran}"'))

    def full_disk(unit, **facts):
        if any(getattr(note, "kind", "") == "stage.running" for note in unit.notes):
            raise OperationalError("database or disk is full")

    unit_closing.connect(full_disk)
    try:
        with pytest.raises(OperationalError):
            run(desk, {"command": "mark"})
    finally:
        unit_closing.disconnect(full_disk)

    stage = Stage.objects.get(command="mark")
    assert (stage.status, stage.started_at) == ("pending", None)
    assert not ran.exists()
    assert server.submissions == 0
    Pipeline.objects.filter(status="running").update(lease_until=None)  # its turn is over
    run(desk, {"command": "mark"}, text="please again")
    assert ran.exists()


def counting() -> dict:
    return {"binary": "wc", "fixed_args": ["-c"]}


def number_schema() -> dict:
    return {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def due_pipelines(desk: Desk, owner, count: int) -> list[Pipeline]:
    owner.install("quiet", binary="true", mode="passthrough", reply=False)
    rules.save_rule(name="all", match="please", calls=[{"command": "quiet"}], by=OPERATOR)
    taken = [intake.take_in(message_id=desk.message("please").pk) for _ in range(count)]
    return [pipeline for pipeline in taken if pipeline is not None]


def ended(pipelines: list[Pipeline]) -> list[bool]:
    return [row.status in Pipeline.ENDED for row in map(refreshed, pipelines)]


def refreshed(pipeline: Pipeline) -> Pipeline:
    return Pipeline.objects.get(pk=pipeline.pk)


@pytest.mark.one_database
def test_one_task_takes_up_what_is_due_next(
    desk, owner, server, django_capture_on_commit_callbacks
):
    rows = due_pipelines(desk, owner, 3)
    with django_capture_on_commit_callbacks(execute=True):
        execution.run_on(pipeline_id=rows[0].pk)

    assert ended(rows) == [True, True, True]
    assert not OrmQ.objects.filter(key="countersign").exists(), "nothing is left for another task"


@pytest.mark.one_database
def test_a_task_hands_on_what_is_due_when_its_time_is_over(
    desk, owner, server, monkeypatch, django_capture_on_commit_callbacks
):
    rows = due_pipelines(desk, owner, 3)
    monkeypatch.setattr(carrying, "ON_SECONDS", 0.0)
    with django_capture_on_commit_callbacks(execute=True):
        execution.run_on(pipeline_id=rows[0].pk)

    assert ended(rows) == [True, False, False]
    [task] = OrmQ.objects.all()
    assert task.task["args"] == (str(rows[1].pk),)

"""One pipeline on its way under a claim: stage after stage, each end on record, then the answer.

A stage is claimed, prepared and started on record before its process runs; its end is recorded
right after. Whatever happens between leaves rows that say so, and recovery (not a second run) is
what follows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
from django.conf import settings

from guards.exceptions import CountersignError
from guards.services import units
from guards.services.units import unit_of_work
from pipelines import registry
from pipelines.exceptions import ClaimLost, CommandNotRunnable, StageMustWait
from pipelines.models import Pipeline, Stage
from pipelines.services import (
    acknowledging,
    beginning,
    claims,
    files,
    missions,
    readying,
    replies,
    stages,
    transitions,
    unanswered,
    waking,
)
from pipelines.services.beginning import Looked
from pipelines.services.claims import Claim
from pipelines.services.readying import Work
from pipelines.signals import stage_returned, stage_starting
from pipelines.types import CommandSpec, RunResult, RunRule

log = structlog.get_logger(__name__)

CLI = "cli"

#: How long one task takes up further pipelines, in seconds.
ON_SECONDS = 5.0
#: How often such a task wakes other workers for what is due beside its own, in seconds.
WAKE_SECONDS = 0.5
#: A program that ran longer may have outlived our connection to the database, in seconds.
_LONG_SECONDS = 1.0
#: Seconds before the queue's own limit at which no further stage begins.
_QUEUE_MARGIN = 30.0
#: What an answer may take, in seconds: longer than any session with a mail server.
_ANSWER_SECONDS = 150.0


@dataclass(slots=True)
class Task:
    """One task of the queue: since when it works, and how long it takes up further pipelines."""

    seconds: float = 0.0
    began: float = field(default_factory=lambda: time.monotonic())
    woken: float = field(default_factory=lambda: time.monotonic() - WAKE_SECONDS)

    @property
    def goes_on(self) -> bool:
        """Whether it takes up another pipeline after this one."""
        return self.spent < self.seconds

    @property
    def spent(self) -> float:
        """How long it has worked, in seconds."""
        return time.monotonic() - self.began

    def has_time_for(self, seconds: float) -> bool:
        """Whether the queue leaves this task long enough for a stage of that timeout."""
        return seconds <= self.seconds_left

    @property
    def seconds_left(self) -> float:
        """How long a stage may take that begins now."""
        return float(settings.QUEUE_TIMEOUT) - _QUEUE_MARGIN - self.spent

    @property
    def is_fresh(self) -> bool:
        """Whether it has only begun: another one would leave a stage no more time."""
        return self.spent <= ON_SECONDS


@dataclass(slots=True)
class Run:
    """One worker's run through one pipeline: the claim, the rows as read, the pipe as it is.

    `started` is the work of the first stage where that began with the claim. `is_kept` says that
    the pipeline's row has this pipe too. `unrecorded` is the end of a stage that goes on record
    together with the start of the next one, a moment later; `filled` is what the row has to say of
    the directory, on record with the first stage. `next_spec` is the next stage's command, looked
    at in that moment. `following` is the next pipeline, where that began with the end of this one.
    """

    task: Task
    claim: Claim
    pipeline: Pipeline
    due: list[Stage]
    reply: Stage | None
    pipe: dict[str, Any]
    directory: Path | None = None
    filled: dict[str, Any] | None = None
    is_kept: bool = True
    unrecorded: stages.Success | None = None
    next_spec: CommandSpec | None = None
    started: Work | None = None
    answers: bool = True
    put_back: bool = False
    is_over: bool = False
    following: Run | None = None

    def record(self) -> None:
        """Put the end of the stage before on record by itself: nothing follows at once."""
        success, self.unrecorded = self.unrecorded, None
        if success is not None:
            stages.succeed(self.claim, success)


def run_of(task: Task, claim: Claim | None, looked: Looked) -> Run | None:
    """The run through a pipeline that has begun as it was looked at."""
    if claim is None:
        return None
    pipeline = looked.pipeline
    rest = (pipeline, looked.due, looked.reply, dict(pipeline.pipe))
    return Run(task, claim, *rest, started=looked.work)


def work_through(run: Run) -> None:
    """Carry out what is due of it, and answer; ClaimLost where somebody else has taken it."""
    with acknowledging.meanwhile(run.pipeline):
        if run.started is not None and (not _carry_out_started(run, run.started) or run.is_over):
            return
        while run.due and not run.pipeline.failing:
            if not _carry_out(run, run.due.pop(0)) or run.is_over:
                return
        run.record()
    if run.task.is_fresh or run.task.has_time_for(_ANSWER_SECONDS):
        replies.answer(run.claim, run.pipeline, run.pipe, wanted=run.answers)
    else:
        _hand_back(run, "its reply needs a task of its own")


def _carry_out(run: Run, stage: Stage) -> bool:
    """Run one stage and record its end; False when the pipeline was given back instead."""
    try:
        if run.directory is None:
            run.directory = _prepare_files(run)
        looked_at, run.next_spec = run.next_spec, None
        work = readying.ready(stage, run.pipe, run.directory, looked_at=looked_at)
    except ClaimLost:
        raise
    except CountersignError as error:
        run.record()
        _fail(run, stage, error, old=Stage.Status.PENDING)
        return True
    if not run.task.has_time_for(work.spec.timeout):
        return _leave_for_later(run, stage, work)
    if not registry.needs_preparation(work.runner):
        success, run.unrecorded = run.unrecorded, None
        filled, run.filled = run.filled, None
        stages.claim_and_start(run.claim, stage, work.vectors, after=success, filled=filled)
        return _run_started(run, stage, work)
    run.record()
    filled, run.filled = run.filled, None
    stages.claim(run.claim, stage, filled=filled)
    try:
        work.runner.prepare(work.job)
    except StageMustWait as error:
        stages.put_back(run.claim, stage, reason=error.detail)
        run.put_back = True
        return False
    except CountersignError as error:
        _fail(run, stage, error, old=Stage.Status.CLAIMED)
        return True
    stages.start(run.claim, stage, work.vectors)
    return _run_started(run, stage, work)


def _carry_out_started(run: Run, work: Work) -> bool:
    """Run the first stage, whose start is on record with the claim, and record its end."""
    stage = run.due.pop(0)
    try:
        run.directory = files.make_empty(run.pipeline.pk)
    except CountersignError as error:
        _fail(run, stage, error, old=Stage.Status.RUNNING)
        return True
    return _run_started(run, stage, work)


def _leave_for_later(run: Run, stage: Stage, work: Work) -> bool:
    """The stage gets a task of its own; one that fits into none fails."""
    run.record()
    if run.task.is_fresh:
        detail = f"{work.spec.timeout:.0f} seconds are more than QUEUE_TIMEOUT leaves a stage"
        _fail(
            run,
            stage,
            CommandNotRunnable(detail, rule=RunRule.NO_TIME.value),
            old=Stage.Status.PENDING,
        )
        return True
    _hand_back(run, "the next stage needs a task of its own")
    return False


def _hand_back(run: Run, reason: str) -> None:
    """Whoever goes on has the pipe as it is now."""
    if not run.is_kept:
        stages.keep(run.claim, pipe=run.pipe)
    claims.hand_back(run.claim, reason=reason)


def _prepare_files(run: Run) -> Path:
    """The pipeline's own directory, with the message's attachments, before its first work stage."""
    run.filled = files.prepare(pipeline=run.pipeline)
    run.pipe = dict(run.pipeline.pipe)
    return files.directory_of(run.pipeline.pk)


def _run_started(run: Run, stage: Stage, work: Work) -> bool:
    facts = {"sender": Stage, "stage_id": stage.pk, "pipeline_id": run.pipeline.pk}
    stage_starting.send(**facts)
    began = time.monotonic()
    try:
        result = work.runner.run(work.job)
    except CountersignError as error:
        result = RunResult(ok=False, error=sentence(error))
    if time.monotonic() - began > _LONG_SECONDS:
        units.look_after_connection()
    stage_returned.send(**facts)
    if result.waiting:
        _wait(run, stage, result)
        return False
    _record_end(run, stage, work, result)
    return _holds_on(run, work)


def _wait(run: Run, stage: Stage, result: RunResult) -> None:
    """An answer that came before the stage was waiting would otherwise be lost."""
    stages.wait(run.claim, stage, result)
    if registry.is_answered(stage.pk):
        waking.go_on(stage_id=stage.pk, actor=transitions.ACTOR)


def _record_end(run: Run, stage: Stage, work: Work, result: RunResult) -> None:
    error = result.error or "it ended without a whole result"
    if result.ok and not result.incomplete:
        try:
            _record_success(run, stage, work, result)
        except ClaimLost:
            raise
        except CountersignError as refusal:
            error = sentence(refusal)
        else:
            return
    stages.fail(run.claim, stage, error, old=Stage.Status.RUNNING, result=result)
    run.pipeline.failing = True


def _record_success(run: Run, stage: Stage, work: Work, result: RunResult) -> None:
    pipe = files.after(work.spec, run.pipe, result.output, work.directory, stage.position)
    run.next_spec = _spec_after(run)
    prepared = registry.needs_preparation(work.runner)
    adopt = _adoption(run, stage, work, result) if work.built_in or prepared else None
    is_over = _is_over_with(run, work)
    is_kept = run.is_kept and pipe is run.pipe
    keeps = not (is_kept or is_over) and (work.built_in is not None or _may_begin_again(run))
    success = stages.Success(stage, result, pipe if keeps else None)
    if is_over:
        run.following = _end(run, success, adopt)
    elif run.next_spec is not None and work.built_in is None and not prepared:
        run.unrecorded = success
    else:
        stages.succeed(run.claim, success, adopt)
    run.is_over = is_over
    run.is_kept = is_kept or keeps
    run.pipe = pipe
    run.answers = work.spec.reply


def _adoption(run: Run, stage: Stage, work: Work, result: RunResult) -> Callable[[], None]:
    """What else changes with the success of a stage, in its transaction."""

    def adopt() -> None:
        if work.built_in is not None:
            work.built_in.adopt(run.pipeline.pk, stage.pk, result.output)
        if registry.needs_preparation(work.runner):
            missions.end_for_stage(stage_id=stage.pk, status="succeeded", reason="")

    return adopt


def _end(run: Run, success: stages.Success, adopt: Callable[[], None] | None = None) -> Run | None:
    """End the pipeline; the next one, if it can begin at once, does so in the same transaction.

    Whatever is wrong with the next one, this one's end goes on record.
    """
    looked = None
    if run.reply is not None:
        try:
            looked = _next(run.task)
        except Exception:
            log.exception("what is due cannot be looked at")
    if run.reply is not None and looked is not None:
        try:
            with unit_of_work():
                unanswered.move_to_end(run.claim, reply=run.reply, after=success, adopt=adopt)
                claim = beginning.begin(looked, last=True)
            return run_of(run.task, claim, looked)
        except ClaimLost:
            pass  # one of the two is gone: the end by itself says which
        except Exception:
            log.exception("the next pipeline did not begin", pipeline=str(looked.pipeline.pk))
    unanswered.end(run.claim, reply=run.reply, after=success, adopt=adopt)
    return None


def _next(task: Task) -> Looked | None:
    """What may begin with the end of this pipeline, if the task has time for it.

    Nothing, where several are carried out beside each other (`group`).
    """
    looked = beginning.look_ahead() if task.goes_on and claims.share() == 1 else None
    return looked if looked and task.has_time_for(looked.work.spec.timeout) else None


def _is_over_with(run: Run, work: Work) -> bool:
    """Whether the pipeline ends with this stage: nothing is left, and no answer is wanted."""
    return not (work.built_in or run.due or work.spec.reply or run.pipeline.failing)


def _may_begin_again(run: Run) -> bool:
    """Whether anybody may take this pipeline up where it is now, and so needs its pipe.

    A stage that is not declared repeatable is never begun by another run; the reply is.
    """
    return run.next_spec is None or run.next_spec.repeatable


def _spec_after(run: Run) -> CommandSpec | None:
    """The command of the next stage, where that is one of the cli runner and may run now."""
    if not run.due or run.due[0].runner != CLI:
        return None
    try:
        return readying.runnable(run.due[0])
    except CountersignError:
        return None


def _holds_on(run: Run, work: Work) -> bool:
    """After a built-in command the rows may be others; with another write set it queues again."""
    if work.built_in is None or run.pipeline.failing:
        return True
    before = run.pipeline.write_set
    run.pipeline.refresh_from_db()
    run.due, run.reply = stages.pending(run.pipeline.pk)
    if run.pipeline.write_set == before:
        return True
    claims.hand_back(run.claim, reason="it was planned, and waits for its turn")
    return False


def _fail(run: Run, stage: Stage, error: CountersignError, *, old: Stage.Status) -> None:
    """A stage that does not run: its signature, arguments, runner, program or contract."""
    stages.fail(run.claim, stage, sentence(error), old=old)
    run.pipeline.failing = True


def sentence(error: CountersignError) -> str:
    """A refusal as the operator reads it."""
    return f"{error.rule}: {error.detail}" if error.rule else error.detail

"""The executor: claims a pipeline, carries its stages out in order, and answers.

A stage's start is on record before its process runs, its end right after. Whatever happens between
leaves rows that say so, and recovery (not a second run) is what follows.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.utils import timezone

from guards import queue
from guards.exceptions import CountersignError
from guards.services.units import unit_of_work
from pipelines import arguments, pipes, registry
from pipelines.exceptions import ClaimLost, OutputInvalid
from pipelines.models import Pipeline, Stage
from pipelines.services import claims, replies, transitions, verification
from pipelines.services.claims import Claim
from pipelines.services.intake import REPLY
from pipelines.signals import stage_returned, stage_starting
from pipelines.types import CommandSpec, Job, RunResult

log = structlog.get_logger(__name__)

#: How much of an output and of an error a stage's row keeps, in characters.
OUTPUT_SHOWN = 20_000
ERROR_SHOWN = 2_000

#: Seconds before the queue's own limit at which no further stage begins.
_QUEUE_MARGIN = 30.0


@dataclass(slots=True)
class _Run:
    """One worker's run through one pipeline: the claim, the rows as read, the pipe as it is."""

    claim: Claim
    pipeline: Pipeline
    stages: list[Stage]
    pipe: dict[str, Any]
    answers: bool = True
    began: float = field(default_factory=time.monotonic)

    def has_time_for(self, seconds: float) -> bool:
        """Whether the queue leaves this task long enough for a stage of that timeout."""
        spent = time.monotonic() - self.began
        return spent + seconds + _QUEUE_MARGIN <= float(settings.QUEUE_TIMEOUT)


def run(*, pipeline_id: UUID) -> Pipeline:
    """Carry a due pipeline as far as it goes; returns it as it is then.

    A pipeline that is not due, or whose turn has not come, is returned unchanged. Never raises for
    what a stage does. Afterwards the next due pipeline is put onto the queue.
    """
    claim = claims.claim_pipeline(pipeline_id)
    if claim is not None:
        try:
            with claims.renewed(claim):
                _work_through(_started(claim))
        except ClaimLost as error:
            log.error(
                "stopped working on a pipeline", pipeline=str(pipeline_id), detail=error.detail
            )
        finally:
            wake_next()
    return Pipeline.objects.get(pk=pipeline_id)


def wake_next() -> None:
    """Put the oldest pipelines whose turn has come onto the queue."""
    for pipeline_id in claims.whose_turn_has_come():
        queue.enqueue("pipelines.tasks.run_pipeline", str(pipeline_id))


def _started(claim: Claim) -> _Run:
    pipeline = Pipeline.objects.get(pk=claim.pipeline_id)
    stages = list(Stage.objects.filter(pipeline_id=claim.pipeline_id).order_by("position"))
    return _Run(claim, pipeline, stages, dict(pipeline.pipe))


def _work_through(run: _Run) -> None:
    for stage in run.stages:
        if run.pipeline.failing or stage.command == REPLY:
            break
        if stage.status != Stage.Status.PENDING:
            continue
        if not _carry_out(run, stage):
            return
    replies.answer(run.claim, run.pipeline, run.pipe, wanted=run.answers)


def _carry_out(run: _Run, stage: Stage) -> bool:
    """Run one stage and record its end; False when the pipeline was handed back instead."""
    try:
        spec, _ = verification.find_runnable(stage.command, planned_digest=stage.digest)
        job = Job(
            spec,
            arguments.complete(spec, stage.args, run.pipe),
            pipes.encode(run.pipe),
            str(run.pipeline.pk),
        )
        runner = registry.runner(spec.runner)
        vectors = [list(vector) for vector in runner.describe(job)]
    except CountersignError as error:
        _fail_unstarted(run, stage, error)
        return True
    if not run.has_time_for(spec.timeout):
        claims.hand_back(run.claim, reason="the next stage needs a task of its own")
        return False
    _record_start(run, stage, vectors)
    facts = {"sender": Stage, "stage_id": stage.pk, "pipeline_id": run.pipeline.pk}
    stage_starting.send(**facts)
    result = runner.run(job)
    stage_returned.send(**facts)
    _record_end(run, stage, spec, result)
    return True


def _record_start(run: _Run, stage: Stage, vectors: list[list[str]]) -> None:
    """Claim and start in one transaction: after it, this stage never runs again by itself."""
    until = claims.lease_end()
    with unit_of_work():
        held = Pipeline.objects.filter(
            pk=run.pipeline.pk, status=Pipeline.Status.RUNNING, **run.claim.mine
        ).update(current=stage.position, lease_until=until)
        transitions.must(bool(held), f"pipeline {run.pipeline.pk}")
        moved = transitions.move_stage(
            stage,
            Stage.Status.RUNNING,
            old=[Stage.Status.PENDING],
            changes={
                **run.claim.mine,
                "attempt": stage.attempt + 1,
                "lease_until": until,
                "started_at": timezone.now(),
                "argv": vectors,
            },
            facts={"attempt": stage.attempt + 1},
        )
        transitions.must(moved, f"stage {stage.position} of pipeline {run.pipeline.pk}")


def _record_end(run: _Run, stage: Stage, spec: CommandSpec, result: RunResult) -> None:
    error = result.error if not result.ok else ""
    pipe = run.pipe
    if result.ok:
        try:
            pipe = pipes.after(spec, run.pipe, result.output)
        except OutputInvalid as invalid:
            error = invalid.detail
    changes = {**_ended(result, error), **_shown_output(result.output)}
    if error:
        _record_failure(run, stage, error, changes, held=run.claim.mine)
        return
    with unit_of_work():
        _keep_pipe(run, pipe)
        moved = transitions.move_stage(
            stage,
            Stage.Status.SUCCEEDED,
            old=[Stage.Status.RUNNING],
            where=run.claim.mine,
            changes=changes,
            facts={"exit_code": result.exit_code, "bytes": len(result.output)},
        )
        transitions.must(moved, f"stage {stage.position} of pipeline {run.pipeline.pk}")
    run.pipe = pipe
    run.answers = spec.reply


def _keep_pipe(run: _Run, pipe: dict[str, Any]) -> None:
    """Write the pipe where it changed; either way the claim is checked in this transaction."""
    changes: dict[str, Any] = {"lease_until": claims.lease_end()}
    if pipe is not run.pipe:
        changes["pipe"] = pipe
    held = Pipeline.objects.filter(
        pk=run.pipeline.pk, status=Pipeline.Status.RUNNING, **run.claim.mine
    ).update(**changes)
    transitions.must(bool(held), f"pipeline {run.pipeline.pk}")


def _fail_unstarted(run: _Run, stage: Stage, error: CountersignError) -> None:
    """A stage that may not run at all: its signature, its arguments, its runner or its program."""
    detail = f"{error.rule}: {error.detail}" if error.rule else error.detail
    changes = {"finished_at": timezone.now(), "error": detail[:ERROR_SHOWN]}
    _record_failure(run, stage, detail, changes, held=None)


def _record_failure(
    run: _Run,
    stage: Stage,
    error: str,
    changes: Mapping[str, Any],
    *,
    held: Mapping[str, Any] | None,
) -> None:
    """One transaction: the stage failed, the ones after it never run, only the reply is left."""
    old = [Stage.Status.RUNNING] if held else [Stage.Status.PENDING]
    with unit_of_work():
        kept = Pipeline.objects.filter(
            pk=run.pipeline.pk, status=Pipeline.Status.RUNNING, **run.claim.mine
        ).update(
            failing=True,
            error=f"{stage.command}: {error}"[:ERROR_SHOWN],
            current=stage.position,
            lease_until=claims.lease_end(),
        )
        transitions.must(bool(kept), f"pipeline {run.pipeline.pk}")
        moved = transitions.move_stage(
            stage,
            Stage.Status.FAILED,
            old=old,
            where=held,
            changes=changes,
            facts={"reason": error[:300]},
        )
        transitions.must(moved, f"stage {stage.position} of pipeline {run.pipeline.pk}")
        cancel_pending(run.pipeline.pk, reason="an earlier stage failed")
    run.pipeline.failing = True


def cancel_pending(pipeline_id: UUID, *, reason: str) -> None:
    """The work stages that will not run any more; the reply stays due."""
    pending = Stage.objects.filter(pipeline_id=pipeline_id, status=Stage.Status.PENDING)
    for stage in pending.exclude(command=REPLY):
        transitions.move_stage(
            stage,
            Stage.Status.CANCELLED,
            old=[Stage.Status.PENDING],
            changes={"finished_at": timezone.now()},
            facts={"reason": reason},
        )


def _ended(result: RunResult, error: str) -> dict[str, Any]:
    return {
        "finished_at": timezone.now(),
        "lease_until": None,
        "exit_code": result.exit_code,
        "stderr": result.stderr,
        "error": error[:ERROR_SHOWN],
        "usage": dict(result.usage),
    }


def _shown_output(output: bytes) -> dict[str, Any]:
    text = output[: OUTPUT_SHOWN * 4].decode("utf-8", "replace").replace("\0", "\ufffd")
    return {"output": text[:OUTPUT_SHOWN], "output_size": len(output)}

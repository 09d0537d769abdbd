"""The executor: claims a pipeline, has it carried out, and takes up what is due next.

What happens to a pipeline under its claim is `carrying`.
"""

from __future__ import annotations

import time
from uuid import UUID

import structlog

from guards.services.units import unit_of_work
from pipelines import memory
from pipelines.exceptions import ClaimLost
from pipelines.models import Pipeline
from pipelines.services import beginning, carrying, claims, readying, stages, waking
from pipelines.services.beginning import Looked
from pipelines.services.carrying import Run, Task
from pipelines.services.claims import Claim

log = structlog.get_logger(__name__)


def run(*, pipeline_id: UUID) -> Pipeline:
    """Carry a due pipeline as far as it goes; returns it as it is then.

    A pipeline that is not due, or whose turn has not come, is returned unchanged. Never raises for
    what a stage does. Afterwards the next due pipeline is put onto the queue.
    """
    _carry_on(pipeline_id, Task())
    return claims.row_of(pipeline_id)


def run_on(*, pipeline_id: UUID) -> None:
    """The same, and then whose turn has come next, in this very task for `ON_SECONDS`.

    A queue of short pipelines so costs no task for each. What else the queue holds waits no longer
    than that.
    """
    _carry_on(pipeline_id, Task(carrying.ON_SECONDS))


def _carry_on(pipeline_id: UUID, task: Task) -> None:
    """Carry a pipeline out whose turn has come, and others for so long as the task goes on.

    Whatever happens, wake what is due.
    """
    memory.keep_heap()
    run = _begun(task, beginning.look_at(pipeline_id)) or _claimed(
        task, claims.claim_pipeline(pipeline_id)
    )
    if run is None:
        return
    begun = True
    try:
        with claims.watched() as watch:
            while run is not None:
                begun = True
                begun = _carry(run, watch)
                run = _after(run, begun=begun)
    finally:
        waking.wake_next(begun=begun)


def _after(run: Run, *, begun: bool) -> Run | None:
    """The next pipeline of this task: one that has begun with the last end, else the next due."""
    task = run.task
    if not task.goes_on:
        return run.following
    _wake_others(run, begun=begun)
    looked = beginning.look_ahead() if begun and not run.following else None
    return run.following or _begun(task, looked) or _claimed(task, claims.claim_next(begun=begun))


def _wake_others(run: Run, *, begun: bool) -> None:
    """Now and then, other workers for what is due beside this task's own.

    A queue that cannot be reached must not strand what has begun: the sweep wakes others, too.
    """
    if time.monotonic() - run.task.woken < carrying.WAKE_SECONDS:
        return
    run.task.woken = time.monotonic()
    try:
        waking.enqueue(claims.whose_turn_has_come(begun=begun)[0 if run.following else 1 :])
    except Exception:
        log.exception("other workers are not woken")


def _begun(task: Task, looked: Looked | None) -> Run | None:
    """The run through a pipeline that was looked at, claimed and begun; None when it must wait."""
    if looked is None or not task.has_time_for(looked.work.spec.timeout):
        return None
    try:
        with unit_of_work():
            claim = beginning.begin(looked)
    except ClaimLost:
        return None
    return carrying.run_of(task, claim, looked)


def _claimed(task: Task, claim: Claim | None) -> Run | None:
    """The run through a pipeline that is claimed and nothing more."""
    if claim is None:
        return None
    pipeline = claim.row or Pipeline.objects.get(pk=claim.pipeline_id)
    due, reply = stages.pending(pipeline.pk)
    wanted = bool(due) or pipeline.failing or readying.wants_answer(pipeline.pk)
    return Run(task, claim, pipeline, due, reply, dict(pipeline.pipe), answers=wanted)


def _carry(run: Run, watch: claims.Watch) -> bool:
    """Whether it began: a pipeline that must wait was put back."""
    watch.hold(run.claim)
    try:
        carrying.work_through(run)
    except ClaimLost as error:
        log.warning(
            "stopped working on a pipeline",
            pipeline=str(run.claim.pipeline_id),
            detail=error.detail,
        )
    finally:
        watch.let_go()
    return not run.put_back

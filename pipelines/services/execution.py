"""The executor: claims a pipeline, has it carried out, and takes up what is due next.

What happens to a pipeline under its claim is `carrying`.
"""

from __future__ import annotations

import time
from functools import partial
from uuid import UUID

import structlog

from guards.process import Several
from guards.services.units import unit_of_work
from pipelines import memory
from pipelines.exceptions import ClaimLost
from pipelines.models import Pipeline
from pipelines.services import beginning, carrying, claims, readying, stages, waking, watching
from pipelines.services.beginning import Looked
from pipelines.services.carrying import Run, Task
from pipelines.services.claims import Claim
from pipelines.services.group import Group
from pipelines.services.watching import Watch

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
    begun = goes_on = True
    try:
        with watching.watched() as watch:
            began = _carry_group_from(pipeline_id, task, watch)
            run = _next_run(task) if began else _first_run(task, pipeline_id)
            goes_on = began or run is not None
            while run is not None:
                begun = True
                begun = _carry(run, watch)
                run = _after(run, watch, begun=begun)
    finally:
        if goes_on:
            waking.wake_next(begun=begun)


def _first_run(task: Task, pipeline_id: UUID) -> Run | None:
    looked = beginning.look_at(pipeline_id)
    return _begun(task, looked) or _claimed(task, claims.claim_pipeline(pipeline_id))


def _next_run(task: Task) -> Run | None:
    return _claimed(task, claims.claim_next()) if task.goes_on else None


def _after(run: Run, watch: Watch, *, begun: bool) -> Run | None:
    """The next pipeline of this task: one that has begun with the last end, else the next due.

    Before that, those that can be carried out beside each other, where several may be.
    """
    task = run.task
    if not task.goes_on:
        return run.following
    if begun and claims.share() > 1:
        _wake_others(task, 1)
        _carry_group(task, watch)
        return _next_run(task)
    _wake_others(task, 0 if run.following else 1, begun=begun)
    looked = beginning.look_ahead() if begun and not run.following else None
    return run.following or _begun(task, looked) or _claimed(task, claims.claim_next(begun=begun))


def _carry_group_from(pipeline_id: UUID, task: Task, watch: Watch) -> bool:
    """Carry that one out beside others, where it can be; whether it has begun."""
    if not task.goes_on or claims.share() == 1:
        return False
    first = beginning.look_for_group(pipeline_id, seconds=task.seconds_left)
    return first is not None and _carry_group(task, watch, first)


def _carry_group(task: Task, watch: Watch, first: Looked | None = None) -> bool:
    """Carry out what can be beside each other; False where the first one does not begin."""
    with Several() as several:
        return Group(task, watch, several).carry_out(first, partial(_wake_others, task))


def _wake_others(task: Task, mine: int, *, begun: bool = True) -> None:
    """Now and then, other workers for what is due beside this task's own, so many of the oldest.

    A queue that cannot be reached must not strand what has begun: the sweep wakes others, too.
    """
    if time.monotonic() - task.woken < carrying.WAKE_SECONDS:
        return
    task.woken = time.monotonic()
    try:
        waking.enqueue(claims.whose_turn_has_come(begun=begun)[mine :: claims.share()])
    except Exception:
        log.exception("other workers are not woken")


def _begun(task: Task, looked: Looked | None) -> Run | None:
    """The run through a pipeline that was looked at, claimed and begun; None when it must wait."""
    if looked is None or not task.has_time_for(looked.work.spec.timeout):
        return None
    try:
        with unit_of_work():
            claim = beginning.begin(looked, last=True)
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


def _carry(run: Run, watch: Watch) -> bool:
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
        watch.let_go(run.claim)
    return not run.put_back

"""Bringing pipelines back to a worker: those that are due, and those whose answer has come."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from guards import queue
from guards.services.units import unit_of_work
from pipelines import registry
from pipelines.models import Pipeline, Stage
from pipelines.services import claims, transitions
from pipelines.services.intake import REPLY


def wake_next(*, begun: bool = True) -> None:
    """Put the oldest pipelines whose turn has come onto the queue.

    Without `begun` only those that no worker has looked at: two pipelines that must wait for
    something else would otherwise wake each other without end. The sweep wakes them.
    """
    enqueue(claims.whose_turn_has_come(begun=begun))


def enqueue(due: Iterable[UUID]) -> None:
    """A task for each of these pipelines."""
    for pipeline_id in due:
        queue.enqueue("pipelines.tasks.run_pipeline", str(pipeline_id))


def go_on(*, stage_id: int, actor: str) -> bool:
    """What a waiting stage waits for was answered: it is due again, and its pipeline queued.

    Joins the caller's transaction. False when the stage does not wait (yet, or any more); the
    executor asks `registry.is_answered` once it has put a stage to wait, and so does the sweep.
    """
    stage = Stage.objects.filter(pk=stage_id).exclude(command=REPLY).first()
    if stage is None:
        return False
    with unit_of_work():
        Pipeline.objects.select_for_update().get(pk=stage.pipeline_id)
        moved = transitions.move_stage(
            stage, Stage.Status.PENDING, old=[Stage.Status.WAITING_APPROVAL], actor=actor
        )
        if moved:
            queued = transitions.move_pipeline(
                stage.pipeline_id,
                Pipeline.Status.QUEUED,
                old=[Pipeline.Status.WAITING_APPROVAL],
                facts={"reason": f"{stage.command} was answered"},
                actor=actor,
            )
            transitions.must(queued, f"pipeline {stage.pipeline_id}")
            queue.enqueue("pipelines.tasks.run_pipeline", str(stage.pipeline_id))
    return moved


def take_answers() -> int:
    """Let every waiting stage go on whose answer came while nobody listened; how many."""
    waiting = Stage.objects.filter(status=Stage.Status.WAITING_APPROVAL).exclude(command=REPLY)
    answered = [pk for pk in waiting.values_list("pk", flat=True) if registry.is_answered(pk)]
    return sum(go_on(stage_id=stage_id, actor=transitions.ACTOR) for stage_id in answered)

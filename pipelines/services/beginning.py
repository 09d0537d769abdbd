"""A pipeline that can begin at once: looked at first, then claimed and started in one move.

All that needs no lock comes before the transaction: the rows, the signed command, its arguments,
its program, what its child will read. The claim is still what decides: its UPDATE finds the row
only as it was when it was looked at, and the first stage starts under it, on record before its
process runs. A pipeline that cannot begin like that is claimed by itself and looked at afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.utils import timezone

from guards.exceptions import CountersignError
from pipelines import registry
from pipelines.models import Pipeline, Stage
from pipelines.services import claims, files, readying, rows, stages, transitions
from pipelines.services.claims import Claim
from pipelines.services.readying import BUILT_IN, Work


@dataclass(frozen=True, slots=True)
class Looked:
    """A due pipeline as it was read, with the work of its first stage; nobody has claimed it."""

    pipeline: Pipeline
    due: list[Stage]
    reply: Stage | None
    work: Work


def look_at(pipeline_id: UUID) -> Looked | None:
    """That pipeline, if it is due and can begin at once."""
    found = rows.find(Pipeline, where={"pk": pipeline_id, "status": Pipeline.DUE})
    return _look(found[0]) if found else None


def look_ahead() -> Looked | None:
    """The due pipeline that waits longest, if it can begin at once."""
    oldest = claims.oldest_due()
    return _look(oldest) if oldest is not None else None


def begin(looked: Looked) -> Claim | None:
    """Claim the pipeline and start its first stage; None when it is not as it was, or must wait.

    Joins the caller's unit. ClaimLost, which rolls the unit back, where only the stage has moved.
    """
    stage = looked.due[0]
    changes = {"current": stage.position, "files_at": timezone.now()}
    claim = claims.claim_looked_at(looked.pipeline, changes=changes)
    if claim is not None:
        moved = stages.move_to_start(claim, stage, looked.work.vectors, until=claims.lease_end())
        transitions.must(moved, f"the first stage of pipeline {looked.pipeline.pk}")
    return claim


def _look(pipeline: Pipeline) -> Looked | None:
    if pipeline.failing:
        return None
    due, reply = stages.pending(pipeline.pk)
    if not due or due[0].runner == BUILT_IN or not files.begins_empty(pipeline):
        return None
    try:
        work = readying.ready(due[0], pipeline.pipe, files.directory_of(pipeline.pk))
    except CountersignError:
        return None  # its claim comes first, and then it fails on record
    if registry.needs_preparation(work.runner):
        return None
    return Looked(pipeline, due, reply, work)

"""A pipeline that can begin at once: looked at first, then claimed and started in one move.

All that needs no lock comes before the transaction: the rows, the signed command, its arguments,
its program, what its child will read. The claim is still what decides: its UPDATE finds the row
only as it was when it was looked at, and the first stage starts under it, on record before its
process runs. A pipeline that cannot begin like that is claimed by itself and looked at afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import structlog
from django.conf import settings
from django.utils import timezone

from guards.exceptions import CountersignError
from pipelines import registry
from pipelines.models import Pipeline, Stage
from pipelines.services import claims, files, readying, rows, stages, transitions, verification
from pipelines.services.claims import Claim
from pipelines.services.readying import BUILT_IN, Work

log = structlog.get_logger(__name__)


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


@dataclass(slots=True)
class _Place:
    """Which of the oldest due pipelines this process looks ahead to: workers stand side by side.

    Two that look at the same moment would see the same oldest one, and one of them in vain. Whoever
    has lost one to another moves on by one; a worker that is alone never does, and takes the
    oldest. `passed` is an oldest one that was left to another: still there the next time, it is
    taken, so that none is passed over twice.
    """

    number: int = 0
    passed: UUID | None = None

    def choose(self, waiting: Sequence[UUID]) -> UUID:
        """One of the oldest that wait, in their order; there is at least one."""
        chosen = waiting[min(self.number, len(waiting) - 1)]
        if waiting[0] == self.passed:
            chosen = waiting[0]
        self.passed = None if chosen == waiting[0] else waiting[0]
        return chosen

    def move_on(self) -> None:
        """Another worker stands here."""
        self.number = (self.number + 1) % max(1, settings.PIPELINE_CONCURRENCY)


_place = _Place()


def look_ahead() -> Looked | None:
    """One of the due pipelines that wait longest, if it can begin at once."""
    waiting = claims.oldest_due(_place.number + 1)
    return look_at(_place.choose(waiting)) if waiting else None


def begin(looked: Looked) -> Claim | None:
    """Claim the pipeline and start its first stage; None when it is not as it was, or must wait.

    Joins the caller's unit. ClaimLost, which rolls the unit back, where only the stage has moved,
    or where its command is no longer the one that was looked at.
    """
    stage = looked.due[0]
    changes = {"current": stage.position, "files_at": timezone.now()}
    claim = claims.claim_looked_at(looked.pipeline, changes=changes)
    if claim is None:
        _place.move_on()
    else:
        moved = stages.move_to_start(claim, stage, looked.work.vectors, until=claims.lease_end())
        transitions.must(moved, f"the first stage of pipeline {looked.pipeline.pk}")
        stands = verification.still_stands(looked.work.spec, stage.digest)
        transitions.must(stands, f"the command that pipeline {looked.pipeline.pk} begins with")
    return claim


def _look(pipeline: Pipeline) -> Looked | None:
    """What is wrong with it must not hurt who looks: its claim comes first, then it fails."""
    try:
        return _found(pipeline)
    except CountersignError:
        return None
    except Exception:
        log.exception("a pipeline cannot be looked at", pipeline=str(pipeline.pk))
        return None


def _found(pipeline: Pipeline) -> Looked | None:
    if pipeline.failing:
        return None
    due, reply = stages.pending(pipeline.pk)
    if not due or due[0].runner == BUILT_IN or not files.begins_empty(pipeline):
        return None
    work = readying.ready(due[0], pipeline.pipe, files.directory_of(pipeline.pk))
    if registry.needs_preparation(work.runner):
        return None
    return Looked(pipeline, due, reply, work)

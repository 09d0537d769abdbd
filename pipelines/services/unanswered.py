"""The end of a pipeline whose success needs no mail: its last stages and its own, in one move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from guards.services.units import unit_of_work
from pipelines.models import Pipeline, Stage
from pipelines.services import stages, transitions
from pipelines.services.claims import Claim
from pipelines.services.intake import REPLY
from pipelines.services.stages import Success


def end(
    claim: Claim,
    *,
    reply: Stage | None = None,
    after: Success | None = None,
    adopt: Callable[[], None] | None = None,
) -> None:
    """End a pipeline whose success needs no mail, under this claim, in one transaction."""
    stage = reply or Stage.objects.get(pipeline_id=claim.pipeline_id, command=REPLY)
    with unit_of_work():
        move_to_end(claim, reply=stage, after=after, adopt=adopt)


def move_to_end(
    claim: Claim,
    *,
    reply: Stage,
    after: Success | None = None,
    adopt: Callable[[], None] | None = None,
) -> None:
    """The same in the caller's unit.

    `after` is the end of its last work stage, where that is not on record yet, with what a built-in
    command or a mission makes of it. `reply` is the reply's row.
    """
    now = timezone.now()

    def end_stages() -> None:
        if after is not None:
            stages.move_to_success(claim, after, adopt)
        moved = transitions.move_stage(
            reply,
            Stage.Status.SUCCEEDED,
            old=[Stage.Status.PENDING],
            changes={"started_at": now, "finished_at": now},
            facts={"mail": False},
        )
        transitions.must(moved, f"the reply of pipeline {claim.pipeline_id}")

    ended = transitions.move_pipeline(
        claim.pipeline_id,
        Pipeline.Status.COMPLETED,
        old=[Pipeline.Status.RUNNING],
        where=claim.mine,
        changes={"finished_at": now, "lease_until": None, "current": reply.position},
        before_note=end_stages,
    )
    transitions.must(ended, f"pipeline {claim.pipeline_id}")


@dataclass(frozen=True, slots=True)
class End:
    """A pipeline whose only stage has ended well, and whose success needs no mail."""

    claim: Claim
    reply: Stage
    success: Success


def move_several_to_end(ends: Sequence[End]) -> list[End]:
    """The same for several, in the caller's unit; those whose claim was not lost.

    ClaimLost where a stage was not as its pipeline says: nobody moves it but under that one's lock.
    """
    now = timezone.now()
    held = _move_pipelines(ends, now)
    work = {
        one.success.stage.pk: (
            one.claim.mine,
            {"status": Stage.Status.SUCCEEDED, **stages.at_its_end(one.success)},
        )
        for one in held
    }
    moved = transitions.move_alike(Stage, work, old=[Stage.Status.RUNNING])
    nothing_sent = {"status": Stage.Status.SUCCEEDED, "started_at": now, "finished_at": now}
    replies: transitions.Moves = {one.reply.pk: ({}, nothing_sent) for one in held}
    moved |= transitions.move_alike(Stage, replies, old=[Stage.Status.PENDING])
    transitions.must(len(moved) == 2 * len(held), "a stage of several pipelines that ended")
    for one in held:
        facts = stages.facts_of(one.success.result)
        transitions.note_stage(one.success.stage, [Stage.Status.SUCCEEDED], facts)
        transitions.note_stage(one.reply, [Stage.Status.SUCCEEDED], {"mail": False})
        transitions.note_pipeline(one.claim.pipeline_id, Pipeline.Status.COMPLETED)
    return held


def _move_pipelines(ends: Sequence[End], now: datetime) -> list[End]:
    wanted = {}
    for one in ends:
        ended = {"finished_at": now, "lease_until": None, "current": one.reply.position}
        changes = {"status": Pipeline.Status.COMPLETED, **ended}
        wanted[one.claim.pipeline_id] = (one.claim.mine, changes)
    moved = transitions.move_alike(Pipeline, wanted, old=[Pipeline.Status.RUNNING])
    return [one for one in ends if one.claim.pipeline_id in moved]

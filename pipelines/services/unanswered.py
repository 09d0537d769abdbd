"""The end of a pipeline whose success needs no mail: its last stages and its own, in one move."""

from __future__ import annotations

from collections.abc import Callable

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

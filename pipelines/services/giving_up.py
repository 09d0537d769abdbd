"""Taking a pipeline's unfinished stages back: an operator cancelled it, or its worker died."""

from __future__ import annotations

from django.db.models import Q
from django.utils import timezone

from pipelines.models import Pipeline, Stage
from pipelines.services import stages, transitions
from pipelines.services.intake import REPLY
from pipelines.signals import stage_given_up

#: Stages that somebody works on or that wait for somebody.
BEGUN = frozenset({*Stage.HELD, Stage.Status.WAITING_APPROVAL})


def give_up_stages(
    pipeline: Pipeline, status: Stage.Status, *, reason: str, actor: str = transitions.ACTOR
) -> None:
    """Move every begun work stage to `status`, and cancel what has not begun; joins the unit.

    A stage that was answered and is due again has begun: its mission is open.
    The fence goes up, so that a worker that was only slow can record nothing more. What a stage was
    waiting for, and its mission, end with it.
    """
    answered = Q(status=Stage.Status.PENDING, started_at__isnull=False)
    begun = Stage.objects.filter(Q(status__in=BEGUN) | answered, pipeline_id=pipeline.pk)
    for stage in begun.exclude(command=REPLY):
        moved = transitions.move_stage(
            stage,
            status,
            old=BEGUN | {Stage.Status.PENDING},
            changes={
                "fence": stage.fence + 1,
                "lease_until": None,
                "finished_at": timezone.now(),
                "error": reason,
            },
            facts={"reason": reason},
            actor=actor,
        )
        if moved:
            stage_given_up.send(
                sender=Stage,
                stage_id=stage.pk,
                pipeline_id=pipeline.pk,
                reason=reason,
                actor=actor,
            )
    stages.cancel_pending(pipeline.pk, reason=reason)


def free_reply(pipeline: Pipeline, *, actor: str = transitions.ACTOR) -> None:
    """A reply that was started and not sent is due again: the notice goes out in its place."""
    for stage in Stage.objects.filter(
        pipeline_id=pipeline.pk, command=REPLY, status__in=Stage.HELD
    ):
        transitions.move_stage(
            stage,
            Stage.Status.PENDING,
            old=Stage.HELD,
            changes={"fence": stage.fence + 1, "claimed_by": "", "lease_until": None},
            actor=actor,
        )

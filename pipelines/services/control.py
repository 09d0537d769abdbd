"""What an operator may do to a pipeline by hand."""

from __future__ import annotations

from uuid import UUID

from django.utils import timezone

from approvals.services import holds
from guards.exceptions import AlreadyDecided, Conflict, NotFound
from guards.services.units import unit_of_work
from guards.types import Asker
from pipelines.models import Pipeline
from pipelines.services import replies, stages, transitions


def cancel(*, pipeline_id: UUID, by: Asker) -> Pipeline:
    """Cancel a pipeline that nothing works on: one that waits for its turn, or for an approval.

    A waiting reply is withdrawn. One that has not begun is answered with the fixed text, since
    every request is answered. AlreadyDecided for one that has ended, Conflict for one that runs:
    its stages are bounded, and what a running program has done cannot be taken back.
    """
    pipeline = Pipeline.objects.select_related("identity").filter(pk=pipeline_id).first()
    if pipeline is None:
        raise NotFound(f"there is no pipeline {pipeline_id}", field="pipeline_id")
    if pipeline.status in Pipeline.ENDED:
        raise AlreadyDecided(f"{pipeline} has ended: {pipeline.status}")
    if pipeline.status == Pipeline.Status.WAITING_APPROVAL:
        _withdraw_reply(pipeline, by)
    elif not _cancel_due(pipeline, by):
        raise Conflict(f"{pipeline} is being worked on; it ends within its stages' time limits")
    pipeline.refresh_from_db()
    return pipeline


def _withdraw_reply(pipeline: Pipeline, by: Asker) -> None:
    reply = replies.reply_of(pipeline.pk)
    if reply is None or reply.hold_id is None:
        raise Conflict(f"{pipeline} has no reply that waits")
    holds.withdraw(hold_id=reply.hold_id, by=by, reason="the pipeline was cancelled")


def _cancel_due(pipeline: Pipeline, by: Asker) -> bool:
    reason = f"{by} cancelled it"
    with unit_of_work():
        moved = transitions.move_pipeline(
            pipeline.pk,
            Pipeline.Status.CANCELLED,
            old=Pipeline.DUE,
            where={"fence": pipeline.fence},
            changes={
                "finished_at": timezone.now(),
                "error": pipeline.error or reason,
                "notice_due": True,
            },
            facts={"reason": reason},
            actor=str(by),
        )
        if moved:
            stages.cancel_pending(pipeline.pk, reason=reason)
    if moved:
        replies.send_notice(pipeline)
    return moved

"""What an operator may do to a pipeline by hand: end it, or have it go on."""

from __future__ import annotations

from uuid import UUID

import structlog
from django.utils import timezone

from approvals.services import holds
from guards.exceptions import AlreadyDecided, Conflict, NotFound
from guards.services.units import unit_of_work
from guards.types import Asker
from mail.models import Outbound
from pipelines.models import Pipeline, Stage
from pipelines.runners import base
from pipelines.services import (
    giving_up,
    recovery,
    replies,
    resuming,
    sending,
    transitions,
    waking,
)
from pipelines.services.intake import REPLY

log = structlog.get_logger(__name__)

_Status = Pipeline.Status
#: Pipelines that have not come to their end.
_OPEN = frozenset(_Status) - Pipeline.ENDED


def cancel(*, pipeline_id: UUID, by: Asker) -> Pipeline:
    """End a pipeline that has not ended: queued, running, or waiting for a person.

    What its stage runs is killed with its whole process group, on whichever host it runs, and the
    worker that ran it records nothing more. What it was waiting for is withdrawn. The requester
    gets the fixed text, once; a reply that waits for approval is withdrawn, and nothing is sent.
    AlreadyDecided for one that has ended, Conflict where its reply is on its way.
    """
    pipeline = _found(pipeline_id)
    if pipeline.status in Pipeline.ENDED:
        raise AlreadyDecided(f"{pipeline} has ended: {pipeline.status}")
    reply = replies.reply_of(pipeline.pk)
    if reply is not None and reply.status == Outbound.Status.HELD and reply.hold_id is not None:
        holds.withdraw(hold_id=reply.hold_id, by=by, reason="the pipeline was cancelled")
    else:
        _end(pipeline, by)
    pipeline.refresh_from_db()
    return pipeline


def resume(*, pipeline_id: UUID, by: Asker) -> Pipeline:
    """Have an interrupted pipeline go on from the stage that it stopped at; see `resuming`."""
    return resuming.resume(pipeline=_found(pipeline_id), by=by)


def _found(pipeline_id: UUID) -> Pipeline:
    pipeline = Pipeline.objects.select_related("identity").filter(pk=pipeline_id).first()
    if pipeline is None:
        raise NotFound(f"there is no pipeline {pipeline_id}", field="pipeline_id")
    return pipeline


def _end(pipeline: Pipeline, by: Asker) -> None:
    reason = f"{by} cancelled it"
    with unit_of_work():
        sending.lock_holds(pipeline.pk)
        pipeline = (
            Pipeline.objects.select_for_update(of=("self",))
            .select_related("identity")
            .get(pk=pipeline.pk)
        )
        _refuse_beside_a_reply(pipeline)
        moved = transitions.move_pipeline(
            pipeline.pk,
            _Status.CANCELLED,
            old=_OPEN,
            where={"fence": pipeline.fence},
            changes={
                "fence": pipeline.fence + 1,
                "lease_until": None,
                "finished_at": timezone.now(),
                "error": pipeline.error or reason,
                "notice_due": True,
            },
            facts={"reason": reason},
            actor=str(by),
        )
        if not moved:
            raise AlreadyDecided(f"{pipeline} has ended meanwhile")
        giving_up.give_up_stages(pipeline, Stage.Status.CANCELLED, reason=reason, actor=str(by))
        giving_up.free_reply(pipeline, actor=str(by))
    ended = base.end_children(str(pipeline.pk))
    log.info("pipeline cancelled", pipeline=str(pipeline.pk), by=str(by), children_ended=ended)
    replies.send_notice(pipeline)
    waking.wake_next()


def _refuse_beside_a_reply(pipeline: Pipeline) -> None:
    """Read under the pipeline's lock, which every move of its reply takes too."""
    reply = replies.reply_of(pipeline.pk)
    if reply is not None and reply.status != Outbound.Status.DRAFT:
        raise Conflict(f"the reply of {pipeline} is on its way ({reply.status}); it ends with it")
    begun = Stage.objects.filter(pipeline_id=pipeline.pk, command=REPLY, status__in=Stage.HELD)
    if begun.exists() and not recovery.is_abandoned(pipeline, timezone.now()):
        raise Conflict(f"the reply of {pipeline} is being written; it ends with it")

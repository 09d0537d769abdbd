"""After a crash: what was being worked on is called interrupted, and its requester is told, once.

Nothing runs again. A reply whose message is on its way is left to its effect, which alone knows
whether it left; its outcome settles the pipeline.
"""

from __future__ import annotations

from datetime import datetime

import structlog
from django.utils import timezone

from guards import process
from guards.services.units import unit_of_work
from mail.models import Outbound
from pipelines.models import Pipeline, Stage
from pipelines.runners import base
from pipelines.services import giving_up, replies, sending, transitions, waking

log = structlog.get_logger(__name__)


def recover() -> int:
    """Interrupt every pipeline whose worker is provably dead or whose lease is past; how many.

    Then send the notices that are due, also those that an earlier recovery did not come to.
    """
    now = timezone.now()
    running = Pipeline.objects.filter(status=Pipeline.Status.RUNNING).order_by("created_at")
    count = sum(interrupt(pipeline=found) for found in running if is_abandoned(found, now))
    for pipeline in Pipeline.objects.filter(notice_due=True).select_related("identity"):
        replies.send_notice(pipeline)
    if count:
        waking.wake_next()
    return count


def interrupt(*, pipeline: Pipeline) -> bool:
    """Call an abandoned pipeline interrupted; False when it moved on, or its reply is on its way.

    The fence goes up, so that a worker that was only slow can record nothing more. What its stages
    have left running on this host is ended (invariant 16).
    """
    reply = replies.reply_of(pipeline.pk)
    if reply is not None and reply.status != Outbound.Status.DRAFT:
        log.info("the reply's effect decides", pipeline=str(pipeline.pk), reply=reply.status)
        replies.let_go(pipeline)
        return False
    reason = f"its worker ({pipeline.claimed_by}) ended while it ran"
    with unit_of_work():
        sending.lock_holds(pipeline.pk)
        moved = transitions.move_pipeline(
            pipeline.pk,
            Pipeline.Status.INTERRUPTED,
            old=[Pipeline.Status.RUNNING],
            where={"fence": pipeline.fence, "claimed_by": pipeline.claimed_by},
            changes={
                "fence": pipeline.fence + 1,
                "lease_until": None,
                "finished_at": timezone.now(),
                "error": pipeline.error or reason,
                "notice_due": True,
            },
            facts={"reason": reason},
        )
        if moved:
            giving_up.give_up_stages(pipeline, Stage.Status.INTERRUPTED, reason=reason)
            giving_up.free_reply(pipeline)
    if moved:
        ended = base.end_children(str(pipeline.pk))
        log.warning("pipeline interrupted", pipeline=str(pipeline.pk), children_ended=ended)
    return moved


def is_abandoned(pipeline: Pipeline, now: datetime) -> bool:
    """Whether a running pipeline's worker is provably dead, or its lease is past."""
    if pipeline.lease_until is None or pipeline.lease_until <= now:
        return True
    return process.is_dead(pipeline.claimed_by)

"""Telling the requester of a long run that the work goes on: by setting, once, with a fixed text.

It says nothing but the reference. It is claimed by a conditional UPDATE before its one contact, it
is a message of its own beside the answer, and it is not sent once the answer has begun. A running
pipeline's worker sends it while the stage runs; the sweep sends it for those that wait.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from uuid import UUID

import structlog
from django.conf import settings
from django.db import DatabaseError, close_old_connections, connections
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from guards.exceptions import CountersignError
from guards.models import Identity
from guards.services.units import unit_of_work
from guards.types import Asker, Subject
from mail.models import Outbound
from mail.services import answering, outbound
from pipelines.models import Pipeline, Stage
from pipelines.services import transitions
from pipelines.services.intake import REPLY
from teams.services import events

log = structlog.get_logger(__name__)

#: How often a worker tries again, in seconds, where the hour has no room for an acknowledgement.
TRY_AGAIN_SECONDS = 30.0

_Status = Pipeline.Status
#: Pipelines that go on while nobody's worker has them in hand.
_WAITING = frozenset({_Status.PLANNED, _Status.QUEUED, _Status.WAITING_APPROVAL})


def fixed_text(pipeline_id: UUID) -> str:
    """All that a requester learns while the work goes on."""
    return f"This request is being worked on. Reference: pipeline-{pipeline_id}\n"


def sweep() -> int:
    """Acknowledge every waiting pipeline that has taken so long; how many were told."""
    if not _seconds():
        return 0
    due = _unanswered(timezone.now()).filter(status__in=_WAITING)
    return sum(acknowledge(pipeline_id=pk) for pk in due.values_list("pk", flat=True))


def acknowledge(*, pipeline_id: UUID) -> bool:
    """Tell the requester of this pipeline, if it is due, once; False where nothing was sent.

    Nothing is sent where each mail needs a person's yes, where half of the hour's automatic replies
    are used (the rest is for answers), or once the answer has begun. Never raises for the mail.
    """
    if not _seconds():
        return False
    pipeline = _unanswered(timezone.now()).select_related("identity").filter(pk=pipeline_id).first()
    if pipeline is None or _must_not(pipeline.identity) or not _claim(pipeline_id):
        return False
    try:
        return _send(pipeline)
    except CountersignError as error:
        log.warning("not acknowledged", pipeline=str(pipeline_id), detail=error.detail)
        return False


def settle(*, message: Outbound) -> None:
    """An acknowledgement left: it goes on record, in the transaction of its effect."""
    if message.origin_type != answering.ACKNOWLEDGEMENT:
        return
    if message.status == Outbound.Status.ACCEPTED:
        events.append_event(
            kind="pipeline.acknowledged",
            subject=Subject("pipelines.pipeline", message.origin_id),
            actor=transitions.ACTOR,
            facts={"outbound": str(message.pk)},
        )


def may_come_due(pipeline: Pipeline, *, within: float) -> bool:
    """Whether its requester may have to be told within so many seconds that the work goes on."""
    if not _seconds() or pipeline.acknowledged_at is not None or pipeline.failing:
        return False
    due = pipeline.created_at + timedelta(seconds=_seconds())
    return due <= timezone.now() + timedelta(seconds=within)


@contextmanager
def meanwhile(pipeline: Pipeline) -> Iterator[None]:
    """Acknowledge from a thread of its own while the stages run.

    It is through, whichever way, before the block ends and the answer begins.
    """
    if not _seconds() or pipeline.acknowledged_at is not None or pipeline.failing:
        yield
        return
    finished = threading.Event()
    thread = threading.Thread(
        target=_watch, args=(pipeline, finished), name=f"acknowledge-{pipeline.pk}", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()


def _watch(pipeline: Pipeline, finished: threading.Event) -> None:
    due = pipeline.created_at + timedelta(seconds=_seconds())
    wait = max(0.0, (due - timezone.now()).total_seconds())
    told = False
    while not told and not finished.wait(wait):
        try:
            told = acknowledge(pipeline_id=pipeline.pk)
        except DatabaseError as error:
            log.warning("not acknowledged yet", pipeline=str(pipeline.pk), error=str(error))
            close_old_connections()
        wait = TRY_AGAIN_SECONDS
    connections.close_all()


def _seconds() -> int:
    return max(0, int(settings.ACKNOWLEDGE_AFTER_SECONDS))


def _unanswered(now: datetime) -> QuerySet[Pipeline]:
    """Pipelines whose requester has waited long enough and was told nothing yet."""
    stages = Stage.objects.filter(pipeline_id=OuterRef("pk"))
    return Pipeline.objects.filter(
        Exists(stages.exclude(command=REPLY)),
        Exists(stages.filter(command=REPLY, status=Stage.Status.PENDING)),
        status__in=frozenset(_Status) - Pipeline.ENDED,
        failing=False,
        resumptions=0,
        acknowledged_at=None,
        created_at__lte=now - timedelta(seconds=_seconds()),
    )


def _must_not(identity: Identity) -> bool:
    if identity.reply_policy == Identity.ReplyPolicy.APPROVE:
        return True
    return answering.is_hour_half_full(identity)


def _claim(pipeline_id: UUID) -> bool:
    """Only one sends it, whoever looks at the same moment, and a crash never sends it twice."""
    now = timezone.now()
    with unit_of_work():
        return bool(_unanswered(now).filter(pk=pipeline_id).update(acknowledged_at=now))


def _send(pipeline: Pipeline) -> bool:
    draft = outbound.draft_reply(
        message_id=pipeline.message_id,
        text=fixed_text(pipeline.pk),
        origin=Subject(answering.ACKNOWLEDGEMENT, str(pipeline.pk)),
        executes=True,
    )
    if not _is_still_unanswered(pipeline):
        outbound.move(
            draft,
            Outbound.Status.CANCELLED,
            from_states=(Outbound.Status.DRAFT,),
            reason="too-late",
        )
        return False
    sent = outbound.submit(outbound_id=draft.pk, asker=Asker("identity", pipeline.identity.handle))
    if sent.status == Outbound.Status.QUEUED:  # later it would stand beside the answer
        outbound.move(
            sent,
            Outbound.Status.CANCELLED,
            from_states=(Outbound.Status.QUEUED,),
            reason="too-late",
        )
    return sent.status in (Outbound.Status.ACCEPTED, Outbound.Status.VERIFIED)


def _is_still_unanswered(pipeline: Pipeline) -> bool:
    """Once more, right before the contact: the work may have come to its end meanwhile."""
    reply = Stage.objects.filter(pipeline_id=pipeline.pk, command=REPLY)
    going_on = Pipeline.objects.filter(pk=pipeline.pk, failing=False).exclude(
        status__in=Pipeline.ENDED
    )
    return reply.filter(status=Stage.Status.PENDING).exists() and going_on.exists()

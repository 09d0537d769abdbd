"""Reactions: an admitted message is taken in, a reply's fate settles its pipeline, and so on."""

from __future__ import annotations

from typing import Any

from django.dispatch import receiver

from guards import queue
from mail.models import Message, Outbound
from mail.signals import message_admitted, outbound_changed
from pipelines.services import missions, replies
from pipelines.signals import stage_given_up


@receiver(message_admitted, dispatch_uid="pipelines.take_in")
def take_in(sender: Any, message: Message, **kwargs: Any) -> None:
    """Execution became due: look at it as soon as this transaction has committed."""
    queue.enqueue("pipelines.tasks.take_in", message.pk)


@receiver(outbound_changed, dispatch_uid="pipelines.settle_reply")
def settle_reply(sender: Any, outbound: Outbound, **kwargs: Any) -> None:
    """An outgoing message moved: its pipeline moves with it, in the same transaction."""
    replies.settle(message=outbound)


@receiver(stage_given_up, dispatch_uid="pipelines.end_mission")
def end_mission(sender: Any, stage_id: int, reason: str, **kwargs: Any) -> None:
    """A stage was cancelled or interrupted: its open mission ends, in the same transaction."""
    missions.end_for_stage(stage_id=stage_id, status="given up", reason=reason)

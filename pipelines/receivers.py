"""Reactions to mail: an admitted message is taken in, a reply's fate settles its pipeline."""

from __future__ import annotations

from typing import Any

from django.dispatch import receiver

from guards import queue
from mail.models import Message, Outbound
from mail.signals import message_admitted, outbound_changed
from pipelines.services import replies


@receiver(message_admitted, dispatch_uid="pipelines.take_in")
def take_in(sender: Any, message: Message, **kwargs: Any) -> None:
    """Execution became due: look at it as soon as this transaction has committed."""
    queue.enqueue("pipelines.tasks.take_in", message.pk)


@receiver(outbound_changed, dispatch_uid="pipelines.settle_reply")
def settle_reply(sender: Any, outbound: Outbound, **kwargs: Any) -> None:
    """An outgoing message moved: its pipeline moves with it, in the same transaction."""
    replies.settle(message=outbound)

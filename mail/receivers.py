"""Reactions to lower apps' signals: rows or a task, never a contact."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.dispatch import receiver

from approvals.models import Connection, Effect, Hold
from approvals.signals import connection_changed, effect_changed, held, hold_closed
from guards import queue
from guards.models import Contact, PinnedKey
from guards.signals import key_changed
from mail.models import Outbound
from mail.services import filing, gmail_connections, outbound
from mail.signals import outbound_changed


@receiver(effect_changed, dispatch_uid="mail.follow_effect")
def follow_effect(effect: Effect, **_: Any) -> None:
    """An outgoing message's status is what its effect says."""
    if effect.kind in outbound.KINDS:
        outbound.follow_effect(effect=effect)


@receiver(hold_closed, dispatch_uid="mail.follow_hold")
def follow_hold(hold: Hold, **_: Any) -> None:
    """A person said no, or the draft was taken back."""
    if hold.kind in outbound.KINDS:
        outbound.follow_hold(hold=hold)


@receiver(held, dispatch_uid="mail.notify_owner")
def notify_owner(**_: Any) -> None:
    """A draft begins to wait for a person."""
    if settings.OWNER_EMAIL:
        queue.enqueue("mail.tasks.notify_owner")


@receiver(connection_changed, dispatch_uid="mail.follow_connection")
def follow_connection(connection: Connection, change: str, **_: Any) -> None:
    """A Gmail account was connected, or nobody may read it any more."""
    gmail_connections.follow(connection=connection, change=change)


@receiver(outbound_changed, dispatch_uid="mail.file_accepted")
def file_accepted(outbound: Outbound, **_: Any) -> None:
    """Accepted mail wants its copy in Sent."""
    if filing.needs_filing(outbound):
        queue.enqueue("mail.tasks.file_sent", str(outbound.pk))


@receiver(key_changed, dispatch_uid="mail.recompute_trust")
def recompute_trust(contact: Contact, key: PinnedKey, **_: Any) -> None:
    """Verdicts rest on pins: look again."""
    queue.enqueue("mail.tasks.recompute_trust", contact.pk, key.fingerprint)

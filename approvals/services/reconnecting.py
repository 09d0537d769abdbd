"""Connections as their reader sees them: whether one may be used, and that a person has to act.

Importing, verifying and revoking are `connections`. A connection that needs a person stays so until
he imports another one: no success and no restart makes it usable again.
"""

from __future__ import annotations

from uuid import UUID

from django.db.models import QuerySet

from approvals.exceptions import ContactRefused
from approvals.models import Connection
from approvals.signals import connection_changed
from guards.services.units import unit_of_work
from guards.types import SYSTEM

_USABLE = (Connection.State.NEW, Connection.State.VERIFIED)


def current(*, account_type: str, account_id: str, use: str) -> Connection | None:
    """The account's connection for that use, in whatever state; None where there never was one."""
    return (
        Connection.objects.filter(account_type=account_type, account_id=account_id, use=use)
        .exclude(state=Connection.State.REVOKED)
        .first()
    )


def usable(*, account_type: str, account_id: str, use: str) -> Connection:
    """The same, if it may be used. ContactRefused: `connection_unavailable`, `needs_reconnect`."""
    found = current(account_type=account_type, account_id=account_id, use=use)
    if found is None:
        raise ContactRefused("connection_unavailable", field="connection")
    if found.state not in _USABLE:
        raise ContactRefused("needs_reconnect", field="connection")
    return found


def still_usable(*, connection_id: UUID, revision: int) -> bool:
    """Whether it is what it was when it was looked up, a moment before a contact."""
    return Connection.objects.filter(
        pk=connection_id, revision=revision, state__in=_USABLE
    ).exists()


def usable_accounts(*, account_type: str, use: str) -> QuerySet[Connection, str]:
    """The ids of the accounts that have a usable connection for that use."""
    rows = Connection.objects.filter(account_type=account_type, use=use, state__in=_USABLE)
    return rows.values_list("account_id", flat=True)


def needs_reconnect(*, connection_id: UUID, revision: int, reason: str) -> bool:
    """The provider no longer accepts it: nobody uses it until a person connects anew.

    `reason` is a stable word. False where it was changed meanwhile: then the new one is another.
    """
    with unit_of_work():
        changed = Connection.objects.filter(
            pk=connection_id, revision=revision, state__in=_USABLE
        ).update(state=Connection.State.NEEDS_RECONNECT, reason=reason[:64])
        if changed:
            connection_changed.send(
                sender=Connection,
                connection=Connection.objects.get(pk=connection_id),
                change="needs_reconnect",
                by=str(SYSTEM),
            )
    return bool(changed)

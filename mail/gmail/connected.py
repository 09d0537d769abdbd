"""Which credentials an account replies through: one that reads and one that sends, both verified.

Database only. A connection counts with its revision: one that was imported or verified anew is
another one, and whatever was approved with the old one has drifted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from approvals.exceptions import Blocked
from approvals.models import Connection
from approvals.types import BoundConnection

_ACCOUNT = "mail.account"
_USES = (Connection.Use.READ, Connection.Use.SEND)


@dataclass(frozen=True, slots=True)
class Pair:
    """The two connections of one account."""

    read: Connection
    send: Connection

    @property
    def address(self) -> str:
        """The mailbox that was verified for both."""
        return self.send.address

    def facts(self) -> dict[str, object]:
        """What an approval binds of them, in the order in which a drift is named."""
        return {"read_connection": _facts(self.read), "send_connection": _facts(self.send)}


def pair(account_id: object) -> Pair | None:
    """The verified pair of an account, or None: then it is not ready for replies through Gmail."""
    found = {
        one.use: one
        for one in Connection.objects.filter(
            account_type=_ACCOUNT,
            account_id=str(account_id),
            use__in=_USES,
            state=Connection.State.VERIFIED,
        )
    }
    if set(found) != set(_USES):
        return None
    read, send = (found[use] for use in _USES)
    same = (read.subject, read.address) == (send.subject, send.address)
    return Pair(read, send) if same and read.subject else None


def required(account_id: object) -> Pair:
    """The same; Blocked where there is none."""
    found = pair(account_id)
    if found is None:
        raise Blocked("connection_unavailable", field="connection")
    return found


def reader_of(account_id: object) -> Connection:
    """The verified reading connection of an account, with or without one to send; Blocked."""
    found = Connection.objects.filter(
        account_type=_ACCOUNT,
        account_id=str(account_id),
        use=Connection.Use.READ,
        state=Connection.State.VERIFIED,
    ).first()
    if found is None:
        raise Blocked("connection_unavailable", field="connection")
    return found


def drifted(facts: Mapping[str, object], now: Pair | None) -> str | None:
    """The first connection that is not the one that was approved with, or None."""
    if now is None:
        return "connection"
    return next((name for name, value in now.facts().items() if facts.get(name) != value), None)


def reading(facts: Mapping[str, object]) -> Connection:
    """The reading connection that an act was approved with, as it stands now.

    Blocked where it is gone, revoked, another one, or belongs to another Google account by now.
    """
    bound = facts.get("read_connection")
    known = dict(bound) if isinstance(bound, Mapping) else {}
    found = reader_of(facts.get("account_id"))
    now = _facts(found)
    if any(known.get(name) != now[name] for name in ("id", "subject", "address")):
        raise Blocked("connection_changed", field="read_connection")
    return found


def bind(connection: Connection) -> BoundConnection:
    """How a grant names it."""
    return BoundConnection(connection.pk, connection.revision)


def _facts(connection: Connection) -> dict[str, object]:
    return {
        "id": str(connection.pk),
        "revision": connection.revision,
        "subject": connection.subject,
        "address": connection.address,
    }

"""What becomes of a Gmail account when somebody connects it, or takes the connection away."""

from __future__ import annotations

from approvals.models import Connection
from mail.gateways.google.base import NeedsReconnect
from mail.models import Account
from mail.services import accounts, gmail_reading

#: Changes after which there is something new to try.
_TRY_AGAIN = frozenset({"imported", "replaced", "verified"})


def follow(*, connection: Connection, change: str) -> None:
    """In the transaction of the change: a revoked account fails at once, a connected one is due.

    What a poll finds out itself, it records itself.
    """
    if (connection.account_type, connection.use) != (
        gmail_reading.ACCOUNT_TYPE,
        Connection.Use.READONLY,
    ):
        return
    account = Account.objects.filter(
        pk=connection.account_id, protocol=Account.Protocol.GMAIL
    ).first()
    if account is None:
        return
    if change == "revoked":
        sentence = (
            "Its read-only connection was revoked. Until you connect it again it is not used."
        )
        accounts.record_failure(account=account, error=NeedsReconnect(sentence))
    elif change in _TRY_AGAIN:
        Account.objects.filter(pk=account.pk).update(next_poll_at=None)

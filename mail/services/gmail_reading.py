"""Reading a Gmail account through its read-only connection, and through nothing else.

The connection has exactly the scope `gmail.readonly`; an answer that omits the scope is accepted
for it, and proves nothing for a reply. What a person has to put right (a revoked token, other
scopes, another mailbox) ends the use of the connection until he connects it again: no request is
made before. What passes by itself is the account's ordinary failure.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from uuid import UUID

from django.conf import settings

from approvals.exceptions import ContactRefused
from approvals.models import Connection
from approvals.services import reconnecting
from approvals.types import Contact, Grant
from guards import secrets
from guards.secrets import Secret
from mail.exceptions import ProfileRefused
from mail.gateways.base import Mailbox
from mail.gateways.google.base import Credential, GoogleGateway, NeedsReconnect, Profile
from mail.gateways.google.mailbox import GmailMailbox, Opened
from mail.gmail import scopes
from mail.gmail.reasons import MEANINGS, Reason
from mail.models import Account
from mail.registry import google
from mail.services.gmail_ledger import RowLedger
from mail.services.leases import Lease

ACCOUNT_TYPE = "mail.account"

#: What reading asks Google for. Never a message to send, never who somebody is.
_READING = frozenset({Contact.REFRESH, Contact.PROFILE, Contact.LIST, Contact.READ})
#: Seconds before its end at which a token counts as over.
_EARLY = 120.0
#: Seconds that one request of a pass may take, at most: the gateway's own bound is the tighter one.
_REQUEST_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ReadingGrant:
    """The standing right of a connection to be read through. Looked at before each contact."""

    connection_id: UUID
    revision: int
    account_id: int

    def spend(self, contact: Contact) -> None:
        """ContactRefused where reading does not ask that, or somebody ended it meanwhile."""
        if contact not in _READING:
            raise ContactRefused("not_for_reading", field="contact")
        if not reconnecting.still_usable(connection_id=self.connection_id, revision=self.revision):
            raise ContactRefused("connection_changed", field="connection")
        switched_off = Account.objects.filter(
            pk=self.account_id, state=Account.State.DISABLED
        ).exists()
        if switched_off:
            raise ContactRefused("account_disabled", field="account")

    def seconds_left(self) -> float:
        """Reading has no deadline of its own."""
        return _REQUEST_SECONDS


def open_mailbox(*, account: Account, lease: Lease) -> Mailbox:
    """The account's label, after token, scope and mailbox were proved: two requests.

    NeedsReconnect without any where a person has to act first; ContactRefused where there is no
    connection at all.
    """
    session = _session(account)
    profile = session.proved()
    return GmailMailbox(
        Opened(
            google=session.google,
            grant=session.grant,
            token=session.token,
            profile=profile,
            ledger=RowLedger(account, lease, profile.email),
            label=account.folder,
            max_bytes=settings.MAIL_MAX_BYTES,
        )
    )


def prove(*, account: Account) -> Profile:
    """Whether the account could be read, by the same two requests. Stores no mail."""
    return _session(account).proved()


def not_connected() -> frozenset[int]:
    """Gmail accounts that nobody can read until a person acts: they are not polled at all."""
    gmail = set(
        Account.objects.filter(protocol=Account.Protocol.GMAIL).values_list("pk", flat=True)
    )
    if not gmail:
        return frozenset()
    connected = reconnecting.usable_accounts(account_type=ACCOUNT_TYPE, use=Connection.Use.READONLY)
    return frozenset(gmail - {int(account_id) for account_id in connected})


def refuse_not_connected(account: Account) -> Connection:
    """The connection; NeedsReconnect where a person has to act, ContactRefused without one."""
    try:
        return reconnecting.usable(
            account_type=ACCOUNT_TYPE, account_id=str(account.pk), use=Connection.Use.READONLY
        )
    except ContactRefused as refusal:
        if refusal.reason != "needs_reconnect":
            raise
    known = reconnecting.current(
        account_type=ACCOUNT_TYPE, account_id=str(account.pk), use=Connection.Use.READONLY
    )
    raise _needs_reconnect(known.reason if known else "")


@dataclass(slots=True)
class _Session:
    """One opening: the token that was proved, and how to get the next one."""

    account: Account
    connection: Connection
    google: GoogleGateway
    grant: Grant
    _token: Secret | None = field(default=None, repr=False)
    _good_until: float = 0.0

    def token(self) -> Secret:
        """A token whose scope was proved; a fresh one where the last is nearly over."""
        if self._token is None or time.monotonic() >= self._good_until:
            self._refresh()
        assert self._token is not None  # noqa: S101 - what a refresh gives, or raises
        return self._token

    def proved(self) -> Profile:
        """The profile of exactly the mailbox that this account is."""
        profile = self.google.profile(grant=self.grant, token=self.token())
        if self.connection.address not in ("", profile.email):
            raise self._ended(Reason.MAILBOX_DIFFERS)
        if self.account.username != profile.email:
            raise ProfileRefused(
                Reason.MAILBOX_DIFFERS,
                "the connection opens another mailbox than the account's user name says",
                field="username",
            )
        return profile

    def _refresh(self) -> None:
        try:
            answer = self.google.refresh(grant=self.grant, credential=_credential(self.connection))
            scopes.prove_legacy(answer.scope)
        except NeedsReconnect:
            raise self._ended("invalid_grant") from None
        except ProfileRefused as refusal:
            raise self._ended(refusal.reason) from refusal
        self._token = answer.access_token
        self._good_until = time.monotonic() + answer.expires_in - _EARLY

    def _ended(self, reason: str) -> NeedsReconnect:
        """Nobody uses the connection again until a person connects the account anew."""
        reconnecting.needs_reconnect(
            connection_id=self.connection.pk, revision=self.connection.revision, reason=reason
        )
        return _needs_reconnect(reason)


def _session(account: Account) -> _Session:
    connection = refuse_not_connected(account)
    grant = ReadingGrant(connection.pk, connection.revision, account.pk)
    return _Session(account, connection, google(), grant)


def _credential(connection: Connection) -> Credential:
    """Resolved now, and kept no longer than the refresh."""
    return Credential(
        client_id=connection.client_id,
        client_secret=secrets.resolve(connection.client_secret_ref),
        refresh_token=secrets.resolve(connection.refresh_token_ref),
    )


def _needs_reconnect(reason: str) -> NeedsReconnect:
    """With what it was that ended the connection, where a profile's reason says more."""
    meaning = MEANINGS[Reason(reason)] if reason in set(Reason) else ""
    sentence = "Until you connect it again it is not used."
    return NeedsReconnect(f"{meaning} {sentence}" if meaning else "", begun=False)

"""Asking Google who a credential is: refresh, exact scopes, UserInfo with that very token, profile.

Whoever asks does so in this order, and the first thing that does not hold ends it: a token whose
scopes were not proved is never used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from approvals.exceptions import Blocked, ContactRefused
from approvals.models import Connection
from approvals.services import reconnecting
from approvals.types import Grant
from guards import secrets
from guards.exceptions import CountersignError
from guards.secrets import Secret
from mail.exceptions import ProfileRefused
from mail.gateways.google.base import Credential, GoogleError, GoogleGateway, NeedsReconnect
from mail.gmail import identity, scopes
from mail.gmail.identity import Identity
from mail.gmail.scopes import ScopeEvidence


@dataclass(frozen=True, slots=True)
class Token:
    """An access token whose scopes its own refresh answer has proved. It serves one phase."""

    secret: Secret
    evidence: ScopeEvidence


@dataclass(frozen=True, slots=True)
class Proven:
    """A token and whose it is."""

    token: Token
    identity: Identity

    def facts(self) -> dict[str, str]:
        """Digests of what was observed; neither the token nor an address."""
        return {"scopes": self.token.evidence.digest, "identity": self.identity.digest}


@contextmanager
def blocking() -> Iterator[None]:
    """Whatever a look finds wrong becomes a Blocked with its stable reason and its field."""
    try:
        yield
    except (Blocked, ContactRefused):
        raise
    except CountersignError as error:
        raise Blocked(reason_of(error), field=error.field or "") from error


def reason_of(error: CountersignError) -> str:
    """The stable word for what went wrong."""
    if isinstance(error, ProfileRefused | GoogleError):
        return error.reason
    return error.code


def refresh(
    google: GoogleGateway, grant: Grant, connection: Connection, declared: frozenset[str]
) -> Token:
    """A new access token with exactly the declared scopes; one contact.

    Where Google says that the credential is over, the connection says so too from now on.
    """
    try:
        answer = google.refresh(grant=grant, credential=credential_of(connection))
    except NeedsReconnect as error:
        reconnecting.needs_reconnect(
            connection_id=connection.pk, revision=connection.revision, reason=error.reason
        )
        raise
    return Token(answer.access_token, scopes.prove(answer.scope, declared))


def credential_of(connection: Connection) -> Credential:
    """What the connection's references stand for right now; SecretUnavailable."""
    return Credential(
        connection.client_id,
        secrets.resolve(connection.client_secret_ref),
        secrets.resolve(connection.refresh_token_ref),
    )


def identify(google: GoogleGateway, grant: Grant, token: Token) -> Proven:
    """Whose token it is; one contact."""
    answer = google.userinfo(grant=grant, token=token.secret)
    return Proven(token, identity.read_userinfo(answer))


def require_mailbox(google: GoogleGateway, grant: Grant, reader: Proven) -> None:
    """The mailbox that the token opens is, byte for byte, the verified address; one contact."""
    profile = google.profile(grant=grant, token=reader.token.secret)
    identity.require_mailbox(profile, reader.identity)


def reader(google: GoogleGateway, grant: Grant, connection: Connection) -> Proven:
    """A reading token of the reviewed scopes, account and mailbox: 3 contacts."""
    proven = identify(google, grant, refresh(google, grant, connection, scopes.READ))
    require_reviewed(proven, connection)
    require_mailbox(google, grant, proven)
    return proven


def both(
    google: GoogleGateway, grant: Grant, read: Connection, send: Connection
) -> tuple[Proven, Proven]:
    """Fresh tokens of both credentials, of one account and its mailbox: 5 contacts.

    Both scopes are proved before anybody is asked whose tokens they are.
    """
    reading = refresh(google, grant, read, scopes.READ)
    sending = refresh(google, grant, send, scopes.SEND)
    reads, sends = identify(google, grant, reading), identify(google, grant, sending)
    identity.require_same(reads.identity, sends.identity)
    require_mailbox(google, grant, reads)
    return reads, sends


def require_reviewed(proven: Proven, connection: Connection) -> None:
    """The account is the one that was reviewed when it was connected."""
    identity.require_reviewed(
        proven.identity, subject=connection.subject, address=connection.address
    )

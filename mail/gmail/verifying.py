"""Verifying new connections of an account: whose they are, what they may do, in 5 contacts.

What it gives is written down by whoever asked; nothing here changes a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from approvals.exceptions import Blocked
from approvals.models import Connection
from approvals.types import Grant
from mail.gateways.google.base import GoogleGateway
from mail.gmail import proofs, scopes
from mail.gmail.proofs import Proven
from mail.gmail.reasons import Reason

#: What each use declares, and nothing else.
DECLARED: Mapping[str, frozenset[str]] = {
    Connection.Use.READ: scopes.READ,
    Connection.Use.SEND: scopes.SEND,
    Connection.Use.READONLY: scopes.LEGACY_READONLY,
}


@dataclass(frozen=True, slots=True)
class Observed:
    """What Google said about one connection. `subject` is empty for one that only reads mail."""

    scopes: tuple[str, ...]
    digest: str
    subject: str
    address: str


def verify(
    google: GoogleGateway, connections: Sequence[Connection], grant: Grant
) -> dict[UUID, Observed]:
    """What was observed, by connection: a reading and a sending one together, or one that only
    reads mail.

    Blocked names the reason and the field. A declaration that is not this use's exact set is
    refused before any contact.
    """
    by_use = {one.use: one for one in connections}
    with proofs.blocking():
        for one in connections:
            if frozenset(one.declared) != DECLARED[Connection.Use(one.use)]:
                raise Blocked("declared_scopes", field="declared")
        if len(by_use) == len(connections) == 2 and not by_use.get(Connection.Use.READONLY):
            return _pair(google, by_use[Connection.Use.READ], by_use[Connection.Use.SEND], grant)
        if list(by_use) == [Connection.Use.READONLY] and len(connections) == 1:
            return _readonly(google, connections[0], grant)
    raise Blocked("not_a_pair", field="connections")


def _pair(
    google: GoogleGateway, read: Connection, send: Connection, grant: Grant
) -> dict[UUID, Observed]:
    reads, sends = proofs.both(google, grant, read, send)
    return {read.pk: _observed(reads), send.pk: _observed(sends)}


def _observed(proven: Proven) -> Observed:
    evidence, known = proven.token.evidence, proven.identity
    return Observed(tuple(sorted(evidence.scopes)), evidence.digest, known.subject, known.address)


def _readonly(google: GoogleGateway, connection: Connection, grant: Grant) -> dict[UUID, Observed]:
    """Two contacts. Without the identity scopes nobody can say whose it is but the mailbox."""
    answer = google.refresh(grant=grant, credential=proofs.credential_of(connection))
    evidence = scopes.prove_legacy(answer.scope)
    profile = google.profile(grant=grant, token=answer.access_token)
    seen = tuple(sorted(evidence.scopes)) if evidence else ()
    digest = evidence.digest if evidence else str(Reason.SCOPE_OMITTED)
    return {connection.pk: Observed(seen, digest, "", profile.email)}

"""Google as the provider of mail accounts: what each credential declares, and whose it is.

What a look gives is written down by whoever asked; nothing here changes an account.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from uuid import UUID

from approvals.exceptions import Blocked
from approvals.models import Connection
from approvals.types import Contact, Grant, Observed
from guards.exceptions import InvalidInput
from guards.types import Subject
from mail.gateways.google.base import GoogleGateway
from mail.gmail import proofs, scopes
from mail.gmail.proofs import Proven
from mail.gmail.reasons import Reason
from mail.models import Account
from mail.services import composing

_DECLARED: Mapping[str, frozenset[str]] = {
    Connection.Use.READ: scopes.READ,
    Connection.Use.SEND: scopes.SEND,
    Connection.Use.READONLY: scopes.LEGACY_READONLY,
}


class GoogleProvider:
    """Connections of mail accounts: a reading and a sending one for replies, or one that reads."""

    account_type = "mail.account"
    caps: Mapping[Contact, int] = MappingProxyType(
        {Contact.REFRESH: 2, Contact.USERINFO: 2, Contact.PROFILE: 1}
    )

    def __init__(self, google: Callable[[], GoogleGateway]) -> None:
        self._google = google

    def declared(self, use: str) -> Sequence[str]:
        """The exact scopes of that use."""
        return sorted(_DECLARED[use])

    def require_account(self, account: Subject) -> None:
        """InvalidInput where there is no such account."""
        if not account.id.isdecimal() or not Account.objects.filter(pk=int(account.id)).exists():
            raise InvalidInput(f"there is no account {account.id}", field="account")

    def verify(self, connections: Sequence[Connection], grant: Grant) -> Mapping[UUID, Observed]:
        """What Google says of them: both of a pair in 5 contacts, or of one that reads in 2.

        Blocked names the reason and the field. A declaration that is not its use's exact set is
        refused before any contact.
        """
        by_use = {one.use: one for one in connections}
        with proofs.blocking():
            for one in connections:
                if frozenset(one.declared) != _DECLARED[one.use]:
                    raise Blocked(Reason.DECLARED_SCOPES, field="declared")
            if set(by_use) == {Connection.Use.READ, Connection.Use.SEND} and len(connections) == 2:
                return self._pair(by_use[Connection.Use.READ], by_use[Connection.Use.SEND], grant)
            if set(by_use) == {Connection.Use.READONLY} and len(connections) == 1:
                return self._readonly(connections[0], grant)
        raise Blocked(Reason.NOT_A_PAIR, field="connections")

    def _pair(self, read: Connection, send: Connection, grant: Grant) -> Mapping[UUID, Observed]:
        """Two credentials of one account, whose mailbox is what our account sends from."""
        reads, sends = proofs.both(self._google(), grant, read, send)
        account = Account.objects.select_related("identity").get(pk=int(read.account_id))
        if composing.sender_address(account) != reads.identity.address:
            raise Blocked(Reason.MAILBOX_DIFFERS, field="from")
        return {read.pk: _observed(reads), send.pk: _observed(sends)}

    def _readonly(self, connection: Connection, grant: Grant) -> Mapping[UUID, Observed]:
        """Without the identity scopes nobody says whose it is but the mailbox itself."""
        google = self._google()
        answer = google.refresh(grant=grant, credential=proofs.credential_of(connection))
        evidence = scopes.prove_legacy(answer.scope)
        profile = google.profile(grant=grant, token=answer.access_token)
        seen = tuple(sorted(evidence.scopes)) if evidence else ()
        digest = evidence.digest if evidence else str(Reason.SCOPE_OMITTED)
        return {connection.pk: Observed(seen, digest, "", profile.email)}


def _observed(proven: Proven) -> Observed:
    evidence, known = proven.token.evidence, proven.identity
    return Observed(tuple(sorted(evidence.scopes)), evidence.digest, known.subject, known.address)

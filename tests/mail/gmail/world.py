"""One agent whose account is connected to a Google that counts, and a letter that waits there."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from approvals.models import Approval, Connection, Consent, Effect, Goal, Root
from approvals.services import approvals, effects, holds, roots
from guards.types import Asker, Subject
from mail.gateways.google.client import GoogleClient
from mail.gateways.google.memory import Issued, MemoryGoogle
from mail.gmail import scopes
from mail.models import Account, Message, Outbound
from mail.registry import register_google
from mail.services import outbound
from tests.mail.factories import AccountFactory, IdentityFactory, make_contact
from tests.servers.google import GoogleServer

ADDRESS = "agent@gmail.test"
SENDER = "bob@example.org"
OPERATOR = Asker("operator", "ada")
_DECLARED = {"read": scopes.READ, "send": scopes.SEND, "readonly": scopes.LEGACY_READONLY}
_numbers = itertools.count(1)
#: What a world has of others.
_NOT_OURS = {"google", "client", "environment", "server"}
#: What a Google remembers, beside its clock and its lock.
_MEMORY = ("people", "issued", "contacts", "down", "_tokens", "_numbers", "_lost")


@dataclass
class GmailWorld:
    """An account with its verified pair, an operator's session, and what Google counted."""

    google: MemoryGoogle
    client: GoogleClient
    environment: Any
    server: GoogleServer
    handle: str = "agent"
    address: str = ADDRESS
    connections: dict[str, Connection] = field(default_factory=dict)
    issued: dict[str, Issued] = field(default_factory=dict)

    def __post_init__(self) -> None:
        register_google(self.client)
        self.person = self.google.add_person(self.address)
        identity = IdentityFactory(handle=self.handle, email=self.address, reply_policy="approve")
        self.account: Account = AccountFactory(identity=identity, sent_folder="", smtp_host="")
        make_contact(identity, SENDER, "rwx")
        for use in ("read", "send"):
            self.connect(use)
        self.root = self.login()

    @contextmanager
    def undone(self, effect: Effect) -> Iterator[Effect]:
        """What happens inside is gone afterwards: rows, faults, and what Google remembers.

        One approved effect, as the database has it, for each of many ways to go on from there.
        """
        own = {name: value for name, value in vars(self).items() if name not in _NOT_OURS}
        google = {name: getattr(self.google, name) for name in _MEMORY}
        # A secret is never copied: the credentials themselves go into the copy.
        credentials = [one.credential for one in self.google.issued]
        own, google = deepcopy((own, google), {id(one): one for one in credentials})
        seconds = self.client._seconds
        turn = transaction.atomic()
        turn._from_testcase = True  # what must be the outermost transaction may be inside this one
        try:
            with turn:
                yield Effect.objects.get(pk=effect.pk)
                transaction.set_rollback(True)
        finally:
            vars(self).update(own)
            vars(self.google).update(google)
            self.client._seconds = seconds
            self.server.heal()

    def login(self, name: str = "ada") -> Root:
        """A new session of an operator."""
        user, _ = get_user_model().objects.get_or_create(
            username=name, is_staff=True, is_superuser=True
        )
        return roots.mint(user=user, principal=Asker("operator", name))

    def connect_fields(self, use: str) -> dict[str, str]:
        """A credential that Google issues now, by secret references."""
        issued = self.issued[use] = self.google.issue(self.person, use)
        number = next(_numbers)
        secret, token = f"GMAIL_CLIENT_{number}", f"GMAIL_TOKEN_{number}"
        self.environment.setenv(secret, issued.credential.client_secret.reveal())
        self.environment.setenv(token, issued.credential.refresh_token.reveal())
        return {
            "client_id": issued.credential.client_id,
            "client_secret_ref": f"env:{secret}",
            "refresh_token_ref": f"env:{token}",
        }

    def connect(self, use: str) -> Connection:
        """A connection as it stands after its verification."""
        self.connections[use] = Connection.objects.create(
            account_type="mail.account",
            account_id=str(self.account.pk),
            use=use,
            declared=sorted(_DECLARED[use]),
            created_by=str(OPERATOR),
            state=Connection.State.VERIFIED,
            verified_at=timezone.now(),
            observed=sorted(_DECLARED[use]),
            observed_digest="0" * 64,
            subject=self.person.subject,
            address=self.person.email,
            **self.connect_fields(use),
        )
        return self.connections[use]

    def revoke(self, use: str) -> None:
        """The operator takes a connection away."""
        Connection.objects.filter(pk=self.connections[use].pk).update(
            state=Connection.State.REVOKED,
            revision=F("revision") + 1,
            revoked_at=timezone.now(),
            revoked_by=str(OPERATOR),
        )

    def letter(self, subject: str = "Quarterly figures", **headers: str) -> Message:
        """A letter in Gmail, and the same one as we have stored it."""
        number = next(_numbers)
        message_id = headers.pop("Message_ID", f"letter-{number}@example.org")
        named = {
            "From": f"Bob Example <{SENDER}>",
            "To": self.address,
            "Subject": subject,
            "Date": "Tue, 1 Dec 2026 07:00:00 +0000",
            "Message-ID": f"<{message_id}>",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
        raw = head.encode() + b"\r\nHow are they?\r\n"
        self.stored = self.person.mailbox.add(raw)
        return Message.objects.create(
            account=self.account,
            number=number,
            sha256=f"{number:064x}",
            size=len(raw),
            sender=SENDER,
            sender_name="Bob Example",
            subject=subject,
            message_id=message_id,
            text="How are they?\n",
            trust_level="unverified",
            trust_reason="unsigned",
            permission="rwx",
            action="surface",
            verdict="allow",
            rule="read-permitted",
        )

    def draft(self, text: str = "They are fine.\n", message: Message | None = None) -> Outbound:
        """A reply that an agent wrote, held for a person."""
        drafted = outbound.draft_reply(
            message_id=(message or self.letter()).pk,
            text=text,
            origin=Subject("operator", f"test-{next(_numbers)}"),
            executes=True,
        )
        return outbound.submit(outbound_id=drafted.pk, asker=Asker("identity", self.handle))

    def open(self, draft: Outbound | None = None, root: Root | None = None) -> Approval:
        """The operator opens it for review."""
        self.outbound = draft or self.draft()
        assert self.outbound.hold_id is not None, self.outbound.reason
        return holds.open_for_review(
            hold_id=self.outbound.hold_id, by=OPERATOR, root=root or self.root
        )

    def approve(self, approval: Approval | None = None) -> Effect:
        """The operator's yes, in the same session."""
        asked = approval or self.open()
        return approvals.approve(
            approval_id=asked.pk, by=OPERATOR, via="console", digest=asked.digest, root=self.root
        )

    def send(self, draft: Outbound | None = None) -> Effect:
        """All of it: opened, approved, dispatched."""
        return self.dispatch(self.approve(self.open(draft)))

    def dispatch(self, effect: Effect) -> Effect:
        """A worker takes it."""
        return effects.dispatch(effect_id=effect.pk)

    def contacts(self) -> Counter[str]:
        """What Google was asked so far, by endpoint and use."""
        return Counter(
            f"{one.endpoint} {one.credential.partition(':')[0]}".strip()
            for one in self.google.contacts
        )

    def sent(self) -> list[bytes]:
        """What lies among the sent mail, oldest first."""
        return [one.raw for one in self.person.mailbox.sent()]


def spent(consent: Consent | None) -> dict[str, int]:
    """What a grant counted."""
    assert consent is not None
    return {one.contact: one.spent for one in consent.budgets.all() if one.spent}


def caps(consent: Consent | None) -> dict[str, int]:
    """What a grant allows."""
    assert consent is not None
    return {one.contact: one.cap for one in consent.budgets.all()}


def last_grant(purpose: str) -> Consent:
    """The newest grant for a purpose."""
    return Consent.objects.filter(purpose=purpose).latest("created_at")


def last_goal() -> Goal:
    """The newest goal."""
    return Goal.objects.latest("created_at")

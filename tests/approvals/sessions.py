"""A kind of act that needs authority, and an operator's session to work under."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from django.contrib.auth import get_user_model

from approvals.models import Approval, Connection, Effect, Root
from approvals.services import approvals, holds, roots
from approvals.types import (
    Act,
    BoundConnection,
    Contact,
    ContactOutcome,
    ContactResult,
    Frozen,
    Grant,
    Observed,
    Purpose,
)
from guards.types import Asker, Subject
from tests.approvals import factories
from tests.approvals.kinds import CountingKind

ACCOUNT = Subject("tests.account", "1")
#: What each purpose of the kind below may contact.
CAPS: Mapping[Purpose, Mapping[Contact, int]] = MappingProxyType(
    {
        Purpose.PREVIEW: {Contact.REFRESH: 1, Contact.READ: 2},
        Purpose.EXECUTE: {Contact.REFRESH: 1, Contact.READ: 2, Contact.POST: 1, Contact.GET: 1},
        Purpose.RECOVER: {Contact.LIST: 1, Contact.GET: 5},
    }
)


@dataclass
class GuardedKind(CountingKind):
    """The counting kind under a session: it looks at a source, posts once and reads back.

    Each contact that its grant let through is one line of the ledger that begins with its word.
    `looking` runs in the last look, before the mark.
    """

    name: str = "tests.guarded"
    outcomes: frozenset[ContactOutcome] = frozenset(
        {ContactOutcome.VERIFIED, ContactOutcome.UNKNOWN}
    )
    caps: Mapping[Purpose, Mapping[Contact, int]] = field(default_factory=lambda: CAPS)
    by_policy: bool = False
    via: frozenset[str] = frozenset({"console"})
    looking: Callable[[], None] = lambda: None
    age: float = 0.0
    bound: list[Connection] = field(default_factory=list)

    def connections(self, subject: Subject, purpose: Purpose) -> Sequence[BoundConnection]:
        """Those of the account that stand now."""
        standing = Connection.objects.exclude(state=Connection.State.REVOKED)
        rows = standing.filter(account_type=ACCOUNT.type, account_id=ACCOUNT.id, use="read")
        return [BoundConnection(one.pk, one.revision) for one in rows]

    def freeze(self, subject: Subject, grant: Grant) -> Frozen:  # type: ignore[override]
        """A refresh and a read of the source, then the snapshot."""
        for contact in (Contact.REFRESH, Contact.READ):
            grant.spend(contact)
            self.write(contact)
        return super().freeze(subject)

    def observe(self, act: Act) -> float | None:
        """The last look: a refresh and a read."""
        for contact in (Contact.REFRESH, Contact.READ):
            act.grant.spend(contact)
            self.write(contact)
        self.looking()
        return time.monotonic() - self.age

    def contact(self, act: Act) -> ContactResult:
        """The post, counted like every other contact."""
        act.grant.spend(Contact.POST)
        return super().contact(act)

    def readback(self, act: Act) -> ContactResult | None:
        """One get of the copy."""
        act.grant.spend(Contact.GET)
        self.write(Contact.GET)
        return super().readback(act)

    def write(self, contact: Contact) -> None:
        """One line: what the provider would have seen."""
        with self.ledger.open("a") as ledger:
            ledger.write(f"{contact} -\n")

    def seen_contacts(self, contact: Contact) -> int:
        """How often the provider saw one."""
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        return sum(line.startswith(f"{contact} ") for line in lines)

    def posts(self) -> int:
        """How often the provider was posted to."""
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        return sum(self.body.decode() in line for line in lines)


class ScriptedProvider:
    """A provider whose verification spends what it is told to and says what it is told to."""

    account_type = ACCOUNT.type
    caps: Mapping[Contact, int] = MappingProxyType(
        {Contact.REFRESH: 2, Contact.USERINFO: 2, Contact.PROFILE: 1}
    )

    def __init__(self) -> None:
        self.spends: list[Contact] = [Contact.REFRESH, Contact.USERINFO, Contact.PROFILE]
        self.error: Exception | None = None
        self.address = "ada@house.example"
        self.during: Callable[[], None] = lambda: None
        self.contacts: list[Contact] = []

    def declared(self, use: str) -> Sequence[str]:
        """One scope of each use."""
        return (f"scope.{use}",)

    def require_account(self, account: Subject) -> None:
        """Any account is."""

    def verify(self, connections: Sequence[Connection], grant: Grant) -> dict[object, Observed]:
        """The script."""
        for contact in self.spends:
            grant.spend(contact)
            self.contacts.append(contact)
        self.during()
        if self.error is not None:
            raise self.error
        return {
            one.pk: Observed(tuple(one.declared), "d" * 64, "subject-1", self.address)
            for one in connections
        }


def session(name: str = "ada") -> Root:
    """A live session of an operator, as a login makes it."""
    user, _ = get_user_model().objects.get_or_create(username=name, defaults={"is_staff": True})
    return roots.mint(user=user, principal=Asker("operator", name))


def opened(root: Root, *, by: Asker = factories.OPERATOR, **changes: object) -> Approval:
    """A draft of the guarded kind that an operator has before him."""
    changes = {"kind": "tests.guarded", "account": ACCOUNT, **changes}
    return holds.open_for_review(hold_id=factories.held(**changes).pk, by=by, root=root)


def approve(approval: Approval, root: Root | None, *, by: Asker = factories.OPERATOR) -> Effect:
    """The yes of that session."""
    return approvals.approve(
        approval_id=approval.pk, by=by, via="console", digest=approval.digest, root=root
    )


def intent(root: Root, **changes: object) -> Effect:
    """A yes that nobody has dispatched yet."""
    return approve(opened(root, **changes), root)

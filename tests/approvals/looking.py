"""A kind of act that is looked at again, with a provider that counts each contact in a file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from uuid import UUID, uuid4

from django.contrib.auth import get_user_model

from approvals.clock import database_now
from approvals.models import Connection, Effect, Root
from approvals.registry import Caps
from approvals.services import approvals, effects, holds, roots
from approvals.types import (
    Act,
    BoundConnection,
    Contact,
    ContactOutcome,
    ContactResult,
    Purpose,
)
from guards.types import Asker, Subject
from tests.approvals import factories
from tests.approvals.kinds import CountingKind

LOST = ContactResult(ContactOutcome.UNKNOWN, "connection-lost-after-data")
FOUND = ContactResult(ContactOutcome.VERIFIED, "one-strict-match", {"candidates": 1})
#: What a look contacts, in its order: by IMAP, and under authority.
LOOK = (Contact.LIST, Contact.GET)
EXACT_LOOK = (Contact.REFRESH, Contact.USERINFO, Contact.PROFILE, *LOOK)
CAPS: Caps = MappingProxyType(
    {
        Purpose.EXECUTE: {Contact.REFRESH: 2, Contact.POST: 1, Contact.GET: 1},
        Purpose.RECOVER: {
            Contact.REFRESH: 1,
            Contact.USERINFO: 1,
            Contact.PROFILE: 1,
            Contact.LIST: 1,
            Contact.GET: 5,
        },
    }
)


@dataclass
class LookingKind(CountingKind):
    """Its contact is lost, unless told otherwise; `found` is what a look brings.

    `looks` are the contacts of a look, counted in the ledger as `look …` after each was granted.
    """

    name: str = "tests.looking"
    result: ContactResult | BaseException = LOST
    caps: Caps = field(default_factory=dict)
    bound: Sequence[BoundConnection] = ()
    found: ContactResult | BaseException | None = FOUND
    looks: Sequence[Contact] = LOOK
    during: Any = None

    def connections(self, subject: Subject, purpose: Purpose) -> Sequence[BoundConnection]:
        """The switch."""
        return self.bound

    def look_again(self, act: Act) -> ContactResult | None:
        """Spend and count each contact, then the switch."""
        for contact in self.looks:
            act.grant.spend(contact)
            self._count(f"look {contact}")
            if self.during is not None:
                self.during(contact)
        if isinstance(self.found, BaseException):
            raise self.found
        return self.found

    def contact(self, act: Act) -> ContactResult:
        """The one contact."""
        act.grant.spend(Contact.POST)
        return super().contact(act)

    def posts(self) -> int:
        """How often the act itself reached the provider."""
        return sum(not line.startswith("look ") for line in self.contacts())

    def looked(self) -> list[str]:
        """What looks asked the provider."""
        return [line.removeprefix("look ") for line in self.contacts() if line.startswith("look ")]

    def _count(self, line: str) -> None:
        descriptor = os.open(self.ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, f"{line}\n".encode())
        os.close(descriptor)


def session(name: str = "ada") -> Root:
    """A live session of an operator, as a login makes it."""
    user, _ = get_user_model().objects.get_or_create(username=name, defaults={"is_staff": True})
    return roots.mint(user=user, principal=Asker("operator", name))


def connection(**changes: object) -> Connection:
    """A verified read connection."""
    values: dict[str, Any] = {
        "account_type": "mail.account",
        "account_id": str(uuid4()),
        "use": Connection.Use.READ,
        "client_id": "client",
        "client_secret_ref": "env:A",
        "refresh_token_ref": "env:B",
        "observed_digest": "0" * 64,
        "state": Connection.State.VERIFIED,
        "verified_at": database_now(),
        "created_by": "operator:ada",
        **changes,
    }
    return Connection.objects.create(**values)


def bound(*connections: Connection) -> list[BoundConnection]:
    """Each at its revision of now."""
    return [BoundConnection(one.pk, one.revision) for one in connections]


def unknown(kind: LookingKind, root: Root | None = None) -> Effect:
    """An act that a person approved and whose one contact was lost."""
    held = factories.held(kind=kind.name)
    by = factories.OPERATOR
    approval = holds.open_for_review(hold_id=held.pk, by=by, root=root)
    effect = approvals.approve(
        approval_id=approval.pk, by=by, via="console", digest=approval.digest, root=root
    )
    effects.dispatch(effect_id=effect.pk)
    effect.refresh_from_db()
    assert effect.phase == Effect.Phase.UNKNOWN
    return effect


def columns(row: Any) -> Mapping[str, Any]:
    """Every column of a row, read afresh."""
    fresh = type(row).objects.get(pk=row.pk)
    return {one.attname: getattr(fresh, one.attname) for one in fresh._meta.concrete_fields}


def wish() -> UUID:
    """What a page mints once for its button."""
    return uuid4()

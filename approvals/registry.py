"""Where upper apps plug in the acts that leave the house.

A kind of act says how its subject is frozen, what is checked again while the approval is consumed,
how the one contact is made, and what is read back. `CONTRIBUTING.md` shows a new kind in under 60
lines.

A permission is a kind without a contact of ours: somebody who waits is allowed to do exactly one
thing, once. It has an approval like any other, never an Effect, and whoever was waiting consumes
it (`approvals.services.approvals.consume`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Protocol

from django.conf import settings

from approvals.exceptions import UnknownKind
from approvals.types import ContactOutcome, ContactResult, Frozen
from guards.types import Subject


class Kind(Protocol):
    """What acts and permissions have in common. `name` is stable, `label` what people read."""

    name: str
    label: str

    def freeze(self, subject: Subject) -> Frozen:
        """Take the snapshot that a person would approve. No network inside a transaction."""
        ...

    def recheck_in_writer(self, subject: Subject, facts: Mapping[str, object]) -> str | None:
        """Inside the consuming transaction, database only: the name of a drifted field, or None."""
        ...


class ActKind(Kind, Protocol):
    """One kind of act that leaves the house. `outcomes`: the phases its contact may end in."""

    outcomes: frozenset[ContactOutcome]

    def contact(
        self, subject: Subject, payload: bytes, facts: Mapping[str, object]
    ) -> ContactResult:
        """Make the one contact, outside any transaction. Never raises for what the peer does."""
        ...

    def readback(
        self, subject: Subject, payload: bytes, facts: Mapping[str, object]
    ) -> ContactResult | None:
        """Look independently whether it arrived, within the same job.

        None where a look proves nothing for this kind or account.
        """
        ...


class PermissionKind(Kind, Protocol):
    """One kind of permission: consumed without a contact of ours, and without an Effect."""

    @property
    def validity(self) -> timedelta:
        """How long an approval of it stays valid after it was opened for review."""
        ...


_acts: dict[str, ActKind] = {}
_permissions: dict[str, PermissionKind] = {}


def register_kind(kind: ActKind) -> None:
    """Make a kind of act known. Called once, in an app's `ready()`."""
    _acts[kind.name] = kind


def register_permission(kind: PermissionKind) -> None:
    """Make a kind of permission known. Called once, in an app's `ready()`."""
    _permissions[kind.name] = kind


def forget_kind(name: str) -> None:
    """Take a kind out again: for an app that is switched off, and for tests of kinds."""
    _acts.pop(name, None)
    _permissions.pop(name, None)


def kind(name: str) -> Kind:
    """The kind of that name, act or permission; UnknownKind otherwise."""
    return _permissions[name] if name in _permissions else act(name)


def act(name: str) -> ActKind:
    """The kind of act of that name; UnknownKind for a permission as well: it has no contact."""
    try:
        return _acts[name]
    except KeyError:
        raise UnknownKind(f"no act of kind {name!r} is registered") from None


def is_permission(name: str) -> bool:
    """Whether that kind is consumed without a contact."""
    return name in _permissions


def validity(name: str) -> timedelta:
    """How long an approval of that kind stays valid: five minutes, unless it says otherwise."""
    if name in _permissions:
        return _permissions[name].validity
    return timedelta(seconds=settings.APPROVAL_SECONDS)


def kinds() -> Mapping[str, Kind]:
    """All registered kinds by name."""
    return {**_acts, **_permissions}

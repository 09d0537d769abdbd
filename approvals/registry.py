"""Where upper apps plug in the acts that leave the house.

A kind of act says how its subject is frozen, what is checked again while the approval is consumed,
how the one contact is made, and what is read back. `CONTRIBUTING.md` shows a new kind in under 60
lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from approvals.exceptions import UnknownKind
from approvals.types import ContactOutcome, ContactResult, Frozen
from guards.types import Subject


class ActKind(Protocol):
    """One kind of act. `name` is stable; `outcomes` are the phases its contact may end in."""

    name: str
    label: str
    outcomes: frozenset[ContactOutcome]

    def freeze(self, subject: Subject) -> Frozen:
        """Take the snapshot that a person would approve. No network inside a transaction."""
        ...

    def recheck_in_writer(self, subject: Subject, facts: Mapping[str, object]) -> str | None:
        """Inside the consuming transaction, database only: the name of a drifted field, or None."""
        ...

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


_kinds: dict[str, ActKind] = {}


def register_kind(kind: ActKind) -> None:
    """Make a kind known. Called once, in an app's `ready()`."""
    _kinds[kind.name] = kind


def forget_kind(name: str) -> None:
    """Take a kind out again: for an app that is switched off, and for tests of kinds."""
    _kinds.pop(name, None)


def kind(name: str) -> ActKind:
    """The kind of that name; UnknownKind otherwise."""
    try:
        return _kinds[name]
    except KeyError:
        raise UnknownKind(f"no act of kind {name!r} is registered") from None


def kinds() -> Mapping[str, ActKind]:
    """All registered kinds by name."""
    return dict(_kinds)

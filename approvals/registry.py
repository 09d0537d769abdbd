"""Where upper apps plug in the acts that leave the house.

A kind of act says how its subject is frozen, what is checked again while the approval is consumed,
how the one contact is made, and what is read back. `CONTRIBUTING.md` shows a new kind in under 60
lines.

A permission is a kind without a contact of ours: somebody who waits is allowed to do exactly one
thing, once. It has an approval like any other, never an Effect, and whoever was waiting consumes
it (`approvals.services.approvals.consume`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from django.conf import settings

from approvals.exceptions import ContactRefused, UnknownKind
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
from guards import registry as guards_registry
from guards.exceptions import InvalidInput
from guards.types import Subject

if TYPE_CHECKING:
    from approvals.models import Connection

_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,31}")

#: How many contacts of each kind a purpose may make.
Caps = Mapping[Purpose, Mapping[Contact, int]]


class NoGrant:
    """For snapshots of kinds that contact nobody: a contact is a mistake of the kind."""

    def spend(self, contact: Contact) -> None:
        """Refused: nobody granted a contact."""
        raise ContactRefused("not_granted", field=str(contact))

    def seconds_left(self) -> float:
        """No contact, no clock."""
        return 0.0


NOTHING: Grant = NoGrant()


class Kind(Protocol):
    """What acts and permissions have in common. `name` is stable, `label` what people read."""

    name: str
    label: str

    def freeze(self, subject: Subject, grant: Grant) -> Frozen:
        """Take the snapshot that a person would approve, outside any transaction.

        A kind with caps for a preview asks its provider under the grant; others leave it alone.
        """
        ...

    def recheck_in_writer(self, subject: Subject, facts: Mapping[str, object]) -> str | None:
        """Inside the consuming transaction, database only: the name of a drifted field, or None."""
        ...


class ActKind(Kind, Protocol):
    """One kind of act that leaves the house; `ActDefaults` has what most kinds leave alone.

    `outcomes`: the phases its contact may end in. `caps`: how many contacts each purpose may make;
    a kind with caps needs a session, a goal and a finite grant beyond its approval. `by_policy`:
    whether a policy may approve it. `via`: by which ways a person may. `freshness`: how old the
    last look at the source may be when the contact is marked, in seconds.
    """

    outcomes: frozenset[ContactOutcome]
    caps: Caps
    by_policy: bool
    via: frozenset[str]
    freshness: float

    def connections(self, subject: Subject, purpose: Purpose) -> Sequence[BoundConnection]:
        """The connections that a grant for this purpose binds. Database only."""
        ...

    def observe(self, act: Act) -> float | None:
        """Look at the source for the last time before the mark, outside any transaction.

        The `time.monotonic()` of the look, None where the kind needs none. Blocked names what it
        found changed; then nothing is contacted.
        """
        ...

    def contact(self, act: Act) -> ContactResult:
        """Make the one contact, outside any transaction. Never raises for what the peer does.

        `accepted` from a kind that cannot end so means: its read-back decides.
        """
        ...

    def readback(self, act: Act) -> ContactResult | None:
        """Look independently whether it arrived, within the same job.

        None where a look proves nothing for this kind or account.
        """
        ...

    def look_again(self, act: Act) -> ContactResult | None:
        """Look for an act of unknown outcome, read-only, under a grant of its own.

        `verified` for exactly one strict match; None where a look proves nothing.
        """
        ...


class ActDefaults:
    """What a kind of act need not say: no caps, any answer, no look before or after the contact."""

    caps: Caps = MappingProxyType({})
    by_policy: bool = True
    via: frozenset[str] = frozenset({"policy", "console", "token", "mail"})
    freshness: float = 10.0

    def connections(self, subject: Subject, purpose: Purpose) -> Sequence[BoundConnection]:
        """None: what it contacts is no connection of ours."""
        return ()

    def observe(self, act: Act) -> float | None:
        """Nothing to look at."""
        return None

    def readback(self, act: Act) -> ContactResult | None:
        """A look proves nothing."""
        return None

    def look_again(self, act: Act) -> ContactResult | None:
        """A look proves nothing."""
        return None


class PermissionKind(Kind, Protocol):
    """One kind of permission: consumed without a contact of ours, and without an Effect."""

    @property
    def validity(self) -> timedelta:
        """How long an approval of it stays valid after it was opened for review."""
        ...


class Provider(Protocol):
    """Where the accounts of one type keep their mail: what a connection there may do.

    `caps`: the contacts that one verification may make.
    """

    account_type: str
    caps: Mapping[Contact, int]

    def declared(self, use: str) -> Sequence[str]:
        """The canonical scopes of a use: exactly these are asked for and accepted."""
        ...

    def require_account(self, account: Subject) -> None:
        """InvalidInput unless that account exists and may be connected. Database only."""
        ...

    def verify(self, connections: Sequence[Connection], grant: Grant) -> Mapping[UUID, Observed]:
        """Ask the provider whose they are and what they may do, outside any transaction.

        Blocked names the reason and the field; then none of them is verified.
        """
        ...


_providers: dict[str, Provider] = {}
_acts: dict[str, ActKind] = {}
_permissions: dict[str, PermissionKind] = {}
_words: dict[str, str] = {}


def register_kind(kind: ActKind) -> None:
    """Make a kind of act known. Called once, in an app's `ready()`."""
    _acts[kind.name] = kind


def register_permission(kind: PermissionKind) -> None:
    """Make a kind of permission known. Called once, in an app's `ready()`."""
    _permissions[kind.name] = kind


def register_provider(provider: Provider) -> None:
    """Make the provider of a type of accounts known. Called once, in an app's `ready()`."""
    _providers[provider.account_type] = provider


def forget_provider(account_type: str) -> None:
    """Take a provider out again: for tests of providers."""
    _providers.pop(account_type, None)


def provider(account_type: str) -> Provider:
    """The provider of that type of accounts; InvalidInput where nobody connects such."""
    try:
        return _providers[account_type]
    except KeyError:
        raise InvalidInput(
            f"nobody connects accounts of the type {account_type!r}", field="account"
        ) from None


def register_words(words: Mapping[str, str]) -> None:
    """What a kind's own reasons say to a person, by their stable word. In an app's `ready()`."""
    _words.update(words)


def words() -> Mapping[str, str]:
    """All of them."""
    return _words


def require_authority(kind: str) -> None:
    """Have the database refuse an effect of that kind without session, goal, job and grant.

    Called once, in an app's `ready()`, by the app that owns the kind.
    """
    if not _NAME.fullmatch(kind):
        raise ValueError(f"{kind!r} cannot be the name of a kind")
    guards_registry.refuse_rows(
        guards_registry.RowRule(
            "approvals.Effect",
            _authority_rule(kind),
            f"NEW.kind = '{kind}' AND (NOT NEW.needs_authority OR NEW.root_id IS NULL"
            " OR NEW.goal_id IS NULL OR NEW.consent_id IS NULL OR NEW.job_id IS NULL)",
            f"{kind} needs a session, a goal, a job and a grant",
        )
    )


def _authority_rule(kind: str) -> str:
    """What the rule of a kind that needs authority is called."""
    return f"effect_authority_of_{kind.replace('.', '_').replace('-', '_')}"


def forget_kind(name: str) -> None:
    """Take a kind out again: for an app that is switched off, and for tests of kinds."""
    _acts.pop(name, None)
    _permissions.pop(name, None)
    guards_registry.forget_rows(_authority_rule(name))


def kind(name: str) -> Kind:
    """The kind of that name, act or permission; UnknownKind otherwise."""
    return _permissions[name] if name in _permissions else act(name)


def act(name: str) -> ActKind:
    """The kind of act of that name; UnknownKind for a permission as well: it has no contact."""
    try:
        return _acts[name]
    except KeyError:
        raise UnknownKind(f"no act of kind {name!r} is registered") from None


def caps(name: str, purpose: Purpose) -> Mapping[Contact, int]:
    """The contacts that a purpose of this kind may make; none for permissions and plain acts."""
    return _acts[name].caps.get(purpose, {}) if name in _acts else {}


def is_permission(name: str) -> bool:
    """Whether that kind is consumed without a contact."""
    return name in _permissions


def validity(name: str) -> timedelta:
    """How long an approval of that kind stays valid: five minutes, unless it says otherwise."""
    if name in _permissions:
        return _permissions[name].validity
    return timedelta(seconds=settings.APPROVAL_SECONDS)


def acts() -> Mapping[str, ActKind]:
    """All registered kinds of acts by name."""
    return dict(_acts)


def kinds() -> Mapping[str, Kind]:
    """All registered kinds by name."""
    return {**_acts, **_permissions}

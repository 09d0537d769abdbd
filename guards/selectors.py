"""Reads of guards: the address book as one snapshot, and what a token may see."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import Prefetch, QuerySet
from django.utils.dateparse import parse_datetime

from guards import patterns, triggers
from guards.addresses import fold
from guards.exceptions import InvalidInput
from guards.models import (
    ApiToken,
    Contact,
    ContactAlias,
    Decision,
    Heartbeat,
    Identity,
    Permission,
    PinnedKey,
    ReplayEntry,
    Setting,
)
from guards.types import NOTHING, Pin, Rwx, SettingName


@dataclass(frozen=True, slots=True)
class ContactEntry:
    """One contact of the snapshot; `rights` maps an identity's id to what the contact may ask."""

    id: int
    name: str
    address: str
    is_pattern: bool
    aliases: frozenset[str] = frozenset()
    rights: Mapping[int, Rwx] = field(default_factory=dict)

    @property
    def addresses(self) -> frozenset[str]:
        """All exact addresses; none for a pattern."""
        return frozenset() if self.is_pattern else self.aliases | {self.address}

    def rwx(self, identity_id: int | None) -> Rwx:
        """The rights for one identity. A pattern gives read at most, whatever its row says."""
        found = self.rights.get(identity_id, NOTHING) if identity_id is not None else NOTHING
        return Rwx(read=found.read) if self.is_pattern else found


@dataclass(frozen=True, slots=True)
class ContactBook:
    """The address book at one moment: four queries once, none per message."""

    exact: Mapping[str, ContactEntry]
    patterns: tuple[ContactEntry, ...]
    pins: tuple[Pin, ...] = ()

    def match(self, address: str) -> ContactEntry | None:
        """Whose address this is (DES-019).

        Exact and alias first, then the longest pattern by characters, ties to the oldest.
        """
        wanted = fold(address)
        entry = self.exact.get(wanted)
        if entry is not None:
            return entry
        return next((entry for entry in self.patterns if _fits(entry, wanted)), None)

    def rwx(self, identity_id: int | None, address: str | None) -> Rwx:
        """What this address may ask of this identity; `---` for strangers and for no identity."""
        if identity_id is None or address is None:
            return NOTHING
        entry = self.match(address)
        return entry.rwx(identity_id) if entry is not None else NOTHING


def contact_book() -> ContactBook:
    """The whole address book with pins that count, as a snapshot for as many messages as needed."""
    entries = _entries()
    exact = {address: entry for entry in entries for address in entry.addresses}
    globs = [entry for entry in entries if entry.is_pattern]
    globs.sort(key=lambda entry: (-len(entry.address), entry.id))
    return ContactBook(exact, tuple(globs), _pins({entry.id: entry for entry in entries}))


def is_pattern(text: str) -> bool:
    """Whether this text is a pattern over addresses, and not one address."""
    return patterns.is_pattern(text)


def check_pattern(pattern: str) -> None:
    """Refuse a malformed pattern (InvalidInput)."""
    patterns.validate(pattern)


def address_matches(pattern: str, address: str) -> bool:
    """Whether an address is this one, or fits this pattern; case does not matter."""
    if not patterns.is_pattern(pattern):
        return fold(pattern) == fold(address)
    return patterns.matches(fold(pattern), fold(address))


def default_identity() -> Identity | None:
    """The identity that is meant where none is named."""
    return Identity.objects.filter(is_default=True, is_active=True).first()


def identity_by_email(email: str) -> Identity | None:
    """The active identity with this address, whatever its case."""
    return Identity.objects.filter(email__iexact=fold(email), is_active=True).first()


def identity_by_handle(handle: str) -> Identity | None:
    """The active identity with this handle."""
    return Identity.objects.filter(handle=handle, is_active=True).first()


def setting(name: SettingName) -> object:
    """The stored value as JSON, or None where none was put."""
    row = Setting.objects.filter(name=name).first()
    return row.value if row is not None else None


def execute_not_before() -> datetime | None:
    """Signatures made before this instant start nothing."""
    stored = setting(SettingName.EXECUTE_NOT_BEFORE)
    return parse_datetime(stored) if isinstance(stored, str) else None


def replay_known(keys: Iterable[str]) -> frozenset[str]:
    """Which of these replay keys have started a pipeline."""
    wanted = set(keys)
    if not wanted:
        return frozenset()
    return frozenset(ReplayEntry.objects.filter(key__in=wanted).values_list("key", flat=True))


def latest_heartbeat(role: str) -> Heartbeat | None:
    """The newest sign of life of a role: `worker`, `watcher` or `web`."""
    return Heartbeat.objects.filter(role=role).order_by("-seen_at").first()


def person_of(asker: str) -> str:
    """The name of the person whose token asked, as `token:PREFIX`; empty for anybody else."""
    kind, _, prefix = asker.partition(":")
    if kind != "token" or not prefix:
        return ""
    found = ApiToken.objects.filter(prefix=prefix, identity__kind=Identity.Kind.HUMAN)
    return found.values_list("identity__name", flat=True).first() or ""


def sees_everything(token: ApiToken) -> bool:
    """Whether a token is bound to neither an identity nor a project, and to no one row."""
    return token.identity_id is None and not token.project and not token.holder_type


def identities_for(token: ApiToken) -> QuerySet[Identity]:
    """The identities that a token may look at: its own, or all where it belongs to none.

    Mail, decisions and contacts belong to identities and to no project: the token of a project that
    belongs to no identity sees none of them, and neither does one that a single row holds.
    """
    identities = Identity.objects.order_by("pk")
    if token.holder_type:
        return identities.none()
    if token.identity_id is not None:
        return identities.filter(pk=token.identity_id)
    return identities.none() if token.project else identities


def decisions_for(token: ApiToken) -> QuerySet[Decision]:
    """The decisions that a token may read: those under its identities, or all."""
    decisions = Decision.objects.select_related("identity")
    if sees_everything(token):
        return decisions
    return decisions.filter(identity__in=identities_for(token))


def contacts_for(token: ApiToken) -> QuerySet[Contact]:
    """The address book as a token may see it: with the rights for its own identity only."""
    rights = Permission.objects.select_related("identity")
    if not sees_everything(token):
        rights = rights.filter(identity__in=identities_for(token))
    contacts = Contact.objects.all()
    if token.holder_type or (token.project and token.identity_id is None):
        contacts = contacts.none()
    return contacts.prefetch_related(
        "aliases",
        Prefetch("pins", PinnedKey.objects.filter(removed_at=None)),
        Prefetch("permissions", rights),
    )


def _fits(entry: ContactEntry, address: str) -> bool:
    try:
        return patterns.matches(entry.address, address)
    except InvalidInput:
        return False


def _entries() -> list[ContactEntry]:
    aliases: dict[int, set[str]] = defaultdict(set)
    for contact_id, address in ContactAlias.objects.values_list("contact_id", "address"):
        aliases[contact_id].add(fold(address))
    rights: dict[int, dict[int, Rwx]] = defaultdict(dict)
    for row in Permission.objects.all().order_by():
        rights[row.contact_id][row.identity_id] = row.rwx
    return [
        ContactEntry(
            id=contact.pk,
            name=contact.name,
            address=fold(contact.address),
            is_pattern=contact.is_pattern,
            aliases=frozenset(aliases.get(contact.pk, ())),
            rights=rights.get(contact.pk, {}),
        )
        for contact in Contact.objects.order_by("pk")
    ]


def _pins(entries: Mapping[int, ContactEntry]) -> tuple[Pin, ...]:
    return tuple(
        Pin(
            addresses=entries[row.contact_id].addresses,
            fingerprint=row.fingerprint,
            public_key=bytes(row.public_key),
            contact=entries[row.contact_id].address,
        )
        for row in PinnedKey.objects.filter(removed_at=None).order_by("pk")
        if row.contact_id in entries and not entries[row.contact_id].is_pattern
    )


def missing_triggers() -> list[str]:
    """The triggers that should stand in the default database, and do not (for `doctor`)."""
    return triggers.missing()

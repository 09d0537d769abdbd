"""Pinning: which public key counts for which contact, and the keys that wait for a person."""

from __future__ import annotations

from typing import Literal

from django.utils import timezone

from guards import openpgp, storable
from guards.exceptions import AlreadyDecided, Conflict, InvalidInput
from guards.models import CandidateKey, Contact, PinnedKey
from guards.services.authority import require_operator
from guards.services.races import lost_to
from guards.services.units import unit_of_work
from guards.signals import key_changed
from guards.types import Asker, Refusal

#: Strangers can attach keys as they like; beyond this many no more are kept waiting.
MAX_CANDIDATES = 500


def pin_key(*, contact: Contact, key: bytes, by: Asker) -> PinnedKey:
    """Pin a public key, armoured or binary, to a contact by its primary fingerprint. Operator only.

    Runs GnuPG first, so it must not be called inside a transaction. The same key again replaces its
    own pin (a longer expiry arrives so). InvalidInput for anything but one public key and for a
    pattern, Conflict when the key counts for another contact. Announces `key_changed` (`pinned`).
    """
    require_operator(by=by, act="pin a key")
    facts = openpgp.read_key(key)
    with unit_of_work(durable=True):
        row = Contact.objects.select_for_update().get(pk=contact.pk)
        _refuse_pattern(row)
        _retire_earlier_pin(row, facts.fingerprint)
        with lost_to(_key_taken(facts.fingerprint)):
            pin = PinnedKey.objects.create(
                contact=row,
                fingerprint=facts.fingerprint,
                public_key=facts.binary,
                uid=storable.text(facts.uid, length=500),
                expires_at=facts.expires_at,
                pinned_by=str(by),
            )
        CandidateKey.objects.filter(fingerprint=facts.fingerprint).delete()
        key_changed.send(sender=PinnedKey, contact=row, key=pin, change="pinned")
    return pin


def remove_pin(
    *, pin: PinnedKey, by: Asker, because: Literal["removed", "revoked"] = "removed"
) -> PinnedKey:
    """Let a key count no longer; the row stays, since verdicts refer to it. Operator only.

    AlreadyDecided when it was removed before. Announces `key_changed` with `because`.
    """
    require_operator(by=by, act="remove a pinned key")
    with unit_of_work():
        moved = PinnedKey.objects.filter(pk=pin.pk, removed_at=None).update(
            removed_at=timezone.now()
        )
        if not moved:
            raise AlreadyDecided(f"key {pin.fingerprint} was removed before")
        pin.refresh_from_db()
        key_changed.send(sender=PinnedKey, contact=pin.contact, key=pin, change=because)
    return pin


def record_candidate(*, key: bytes, seen_from: str, source: str) -> CandidateKey | None:
    """Keep a key that was seen, until a person pins or drops it. It never counts in a verdict.

    Runs GnuPG: not inside a transaction. Returns None for what is not one public key, for a pinned
    key, and while `MAX_CANDIDATES` wait already.
    """
    try:
        facts = openpgp.read_key(key)
    except InvalidInput:
        return None
    with unit_of_work():
        if PinnedKey.objects.filter(fingerprint=facts.fingerprint, removed_at=None).exists():
            return None
        known = CandidateKey.objects.filter(fingerprint=facts.fingerprint).first()
        if known is not None or CandidateKey.objects.count() >= MAX_CANDIDATES:
            return known
        candidate, _ = CandidateKey.objects.get_or_create(
            fingerprint=facts.fingerprint,
            defaults={
                "public_key": facts.binary,
                "uid": storable.text(facts.uid, length=500),
                "seen_from": storable.text(seen_from, length=254),
                "source": storable.text(source, length=200),
            },
        )
        return candidate


def drop_candidate(*, candidate: CandidateKey, by: Asker) -> None:
    """Forget a key that nobody will pin. Operator only."""
    require_operator(by=by, act="drop a candidate key")
    with unit_of_work():
        candidate.delete()


def _refuse_pattern(contact: Contact) -> None:
    if contact.is_pattern:
        raise InvalidInput(
            f"{contact.address} is a pattern: a key is pinned to one exact address",
            field="contact",
            rule=Refusal.PATTERN_HOLDS_NO_KEY,
        )


def _retire_earlier_pin(contact: Contact, fingerprint: str) -> None:
    earlier = (
        PinnedKey.objects.select_for_update()
        .filter(fingerprint=fingerprint, removed_at=None)
        .first()
    )
    if earlier is None:
        return
    if earlier.contact_id != contact.pk:
        raise _key_taken(fingerprint)
    PinnedKey.objects.filter(pk=earlier.pk).update(removed_at=timezone.now())


def _key_taken(fingerprint: str) -> Conflict:
    return Conflict(
        f"key {fingerprint} counts for another contact already: remove it there first",
        field="key",
        rule=Refusal.KEY_TAKEN,
    )

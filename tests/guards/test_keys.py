"""Pins: a full primary fingerprint, one public key, one contact; and keys that only wait."""

from __future__ import annotations

from typing import Any

import pytest

from guards import selectors
from guards.exceptions import AlreadyDecided, Conflict, InvalidInput, Refused
from guards.models import CandidateKey, PinnedKey
from guards.services import keys as key_services
from guards.signals import key_changed
from guards.types import Asker, Refusal
from tests.guards.factories import OPERATOR, ContactFactory

pytestmark = pytest.mark.django_db


@pytest.mark.fault("W8", "pgp-verify-02")
def test_it_pins_the_primary_fingerprint_in_full(keys: Any) -> None:
    contact = ContactFactory(address="alice@example.org")
    pin = key_services.pin_key(contact=contact, key=keys.alice.public, by=OPERATOR)
    assert pin.fingerprint == keys.alice.fingerprint
    assert len(pin.fingerprint) == 40
    assert pin.expires_at is not None
    assert pin.pinned_by == "operator:ada"
    (counted,) = selectors.contact_book().pins
    assert (counted.fingerprint, counted.addresses) == (
        keys.alice.fingerprint,
        {"alice@example.org"},
    )


@pytest.mark.one_database
def test_it_refuses_what_is_not_exactly_one_public_key(keys: Any) -> None:
    contact = ContactFactory()
    for content in (b"", b"no key", keys.alice.public + keys.bob.public, b"\x99" * 300):
        with pytest.raises(InvalidInput):
            key_services.pin_key(contact=contact, key=content, by=OPERATOR)
    assert not PinnedKey.objects.exists()


@pytest.mark.one_database
def test_it_refuses_a_pattern_contact(keys: Any) -> None:
    pattern = ContactFactory(address="*@example.org")
    with pytest.raises(InvalidInput) as refused:
        key_services.pin_key(contact=pattern, key=keys.alice.public, by=OPERATOR)
    assert refused.value.rule == Refusal.PATTERN_HOLDS_NO_KEY


def test_a_key_counts_for_one_contact_only(keys: Any) -> None:
    first, second = ContactFactory(), ContactFactory()
    pin = key_services.pin_key(contact=first, key=keys.alice.public, by=OPERATOR)
    with pytest.raises(Conflict) as refused:
        key_services.pin_key(contact=second, key=keys.alice.public, by=OPERATOR)
    assert refused.value.rule == Refusal.KEY_TAKEN
    key_services.remove_pin(pin=pin, by=OPERATOR)
    key_services.pin_key(contact=second, key=keys.alice.public, by=OPERATOR)


def test_the_same_key_again_replaces_its_pin_and_keeps_the_old_row(keys: Any) -> None:
    contact = ContactFactory()
    for _ in range(2):
        key_services.pin_key(contact=contact, key=keys.alice.public, by=OPERATOR)
    assert contact.pins.filter(removed_at=None).count() == 1
    assert contact.pins.count() == 2


def test_changes_are_announced_and_a_pin_is_removed_once(keys: Any) -> None:
    heard: list[str] = []

    def listen(change: str, **_: object) -> None:
        heard.append(change)

    key_changed.connect(listen)
    try:
        pin = key_services.pin_key(contact=ContactFactory(), key=keys.alice.public, by=OPERATOR)
        key_services.remove_pin(pin=pin, by=OPERATOR, because="revoked")
        with pytest.raises(AlreadyDecided):
            key_services.remove_pin(pin=pin, by=OPERATOR)
    finally:
        key_changed.disconnect(listen)
    assert heard == ["pinned", "revoked"]
    assert selectors.contact_book().pins == ()


@pytest.mark.fault("pgp-verify-19", "W2")
def test_a_key_that_came_with_mail_waits_and_counts_for_nothing(keys: Any) -> None:
    seen = {"seen_from": "boss@corp.example", "source": "message 7"}
    first = key_services.record_candidate(key=keys.mallory.public, **seen)
    again = key_services.record_candidate(key=keys.mallory.public, **seen)
    assert first == again
    assert CandidateKey.objects.get().fingerprint == keys.mallory.fingerprint
    assert selectors.contact_book().pins == ()
    assert key_services.record_candidate(key=b"no key", **seen) is None


def test_a_pinned_candidate_waits_no_longer_and_a_pinned_key_is_no_candidate(keys: Any) -> None:
    seen = {"seen_from": "alice@example.org", "source": "message 7"}
    key_services.record_candidate(key=keys.alice.public, **seen)
    key_services.pin_key(contact=ContactFactory(), key=keys.alice.public, by=OPERATOR)
    assert not CandidateKey.objects.exists()
    assert key_services.record_candidate(key=keys.alice.public, **seen) is None


def test_strangers_cannot_fill_the_table_with_keys(
    keys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_services, "MAX_CANDIDATES", 1)
    seen = {"seen_from": "x@example.org", "source": "message 7"}
    assert key_services.record_candidate(key=keys.alice.public, **seen) is not None
    assert key_services.record_candidate(key=keys.bob.public, **seen) is None
    assert CandidateKey.objects.count() == 1


@pytest.mark.one_database
@pytest.mark.fault("W11")
def test_an_agent_pins_removes_and_drops_no_key(keys: Any) -> None:
    agent = Asker("identity", "claude")
    contact = ContactFactory()
    pin = key_services.pin_key(contact=contact, key=keys.alice.public, by=OPERATOR)
    candidate = key_services.record_candidate(key=keys.bob.public, seen_from="", source="file")
    assert candidate is not None
    for attempt in (
        lambda: key_services.pin_key(contact=contact, key=keys.bob.public, by=agent),
        lambda: key_services.remove_pin(pin=pin, by=agent),
        lambda: key_services.drop_candidate(candidate=candidate, by=agent),
    ):
        with pytest.raises(Refused) as refused:
            attempt()
        assert refused.value.rule == Refusal.OPERATOR_ONLY


@pytest.mark.django_db(transaction=True)
def test_a_key_is_not_read_inside_a_transaction(keys: Any) -> None:
    from django.db import transaction

    with pytest.raises(RuntimeError), transaction.atomic():
        key_services.pin_key(contact=ContactFactory(), key=keys.alice.public, by=OPERATOR)

"""Whose address is this: exact and alias first, then the longest pattern, ties to the oldest."""

from __future__ import annotations

import pytest
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guards import patterns, selectors
from guards.models import PinnedKey
from guards.selectors import ContactBook, ContactEntry
from guards.types import Rwx
from tests.guards.factories import (
    AliasFactory,
    ContactFactory,
    IdentityFactory,
    PermissionFactory,
)

pytestmark = pytest.mark.django_db


@pytest.mark.fault("sister-17")
def test_one_pattern_covers_senders_that_change_with_every_mail() -> None:
    identity = IdentityFactory()
    pattern = ContactFactory(address="*@mail.example.org")
    PermissionFactory(identity=identity, contact=pattern)
    book = selectors.contact_book()
    for sender in ("no-reply-abc@mail.example.org", "No-Reply-XYZ@MAIL.example.org"):
        assert str(book.rwx(identity.pk, sender)) == "r--"
    assert str(book.rwx(identity.pk, "no-reply@mail.example.net")) == "---"


def test_an_exact_contact_without_rights_beats_a_pattern_that_reads() -> None:
    identity = IdentityFactory()
    PermissionFactory(identity=identity, contact=ContactFactory(address="*@mail.example.org"))
    ContactFactory(address="attacker@mail.example.org")
    book = selectors.contact_book()
    assert str(book.rwx(identity.pk, "ATTACKER@mail.example.org")) == "---"
    assert str(book.rwx(identity.pk, "other@mail.example.org")) == "r--"


def test_the_longest_pattern_wins_and_a_tie_goes_to_the_oldest() -> None:
    ContactFactory(address="*@app.example")
    longest = ContactFactory(address="*@ci.app.example")
    older = ContactFactory(address="a*@x.example")
    ContactFactory(address="*a@x.example")
    book = selectors.contact_book()
    found = book.match("sam@ci.app.example")
    assert found is not None
    assert found.id == longest.pk
    tied = book.match("a-a@x.example")
    assert tied is not None
    assert tied.id == older.pk


def test_an_alias_carries_the_rights_of_its_contact() -> None:
    identity = IdentityFactory()
    alias = AliasFactory()
    PermissionFactory(identity=identity, contact=alias.contact, execute=True)
    assert str(selectors.contact_book().rwx(identity.pk, alias.address.upper())) == "r-x"


@pytest.mark.fault("sister-15")
def test_a_pattern_gives_read_at_most_even_if_a_row_says_more() -> None:
    entry = ContactEntry(1, "", "*@relay.example", True, rights={7: Rwx(True, True, True)})
    book = ContactBook({}, (entry,))
    assert str(book.rwx(7, "owner@relay.example")) == "r--"


@pytest.mark.fault("transport-auth-08", "headers-04")
def test_only_the_address_matches_never_text_around_it() -> None:
    identity = IdentityFactory()
    friend = ContactFactory(address="someone@good.example")
    PermissionFactory(identity=identity, contact=friend)
    book = selectors.contact_book()
    for text in ('"someone@good.example" <evil@bad.example>', "someone@good.example,x@y"):
        assert book.match(text) is None
    assert book.match("evil@bad.example") is None


def test_a_pin_counts_for_all_exact_addresses_of_its_contact_until_it_is_removed() -> None:
    alias = AliasFactory()
    pin = PinnedKey.objects.create(
        contact=alias.contact, fingerprint="A" * 40, public_key=b"key", pinned_by="operator:ada"
    )
    (found,) = selectors.contact_book().pins
    assert found.addresses == {alias.contact.address, alias.address}
    assert (found.fingerprint, found.public_key) == ("A" * 40, b"key")
    pin.removed_at = pin.pinned_at
    pin.save()
    assert selectors.contact_book().pins == ()


def test_the_snapshot_costs_four_queries_however_long_the_book_is(
    django_assert_num_queries: CaptureQueriesContext,
) -> None:
    identity = IdentityFactory()
    for contact in ContactFactory.create_batch(5):
        PermissionFactory(identity=identity, contact=contact)
        AliasFactory(contact=contact)
    with django_assert_num_queries(4):  # type: ignore[operator]
        book = selectors.contact_book()
        assert [str(book.rwx(identity.pk, f"{n}@nowhere.example")) for n in range(9)]


ENTRIES = st.lists(
    st.sampled_from(["a@x", "ab@x", "*@x", "a*@x", "*b@x", "??@x", "[ab]*@x", "*@*", "b@y", "*@y"]),
    max_size=6,
    unique=True,
)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(ENTRIES, st.sampled_from(["a@x", "ab@x", "b@x", "b@y", "ba@y", "c@z"]))
def test_precedence_agrees_with_its_sentence(addresses: list[str], sender: str) -> None:
    entries = [
        ContactEntry(number, "", address, patterns.is_pattern(address))
        for number, address in enumerate(addresses)
    ]
    exact = {entry.address: entry for entry in entries if not entry.is_pattern}
    globs = [entry for entry in entries if entry.is_pattern]
    globs.sort(key=lambda entry: (-len(entry.address), entry.id))
    found = ContactBook(exact, tuple(globs)).match(sender)
    if sender in addresses:
        assert found is not None
        assert found.address == sender
        return
    fitting = [entry for entry in entries if entry.is_pattern and _fits(entry.address, sender)]
    longest = max((len(entry.address) for entry in fitting), default=0)
    best = [entry for entry in fitting if len(entry.address) == longest]
    assert found == (best[0] if best else None)


def _fits(pattern: str, sender: str) -> bool:
    return patterns.matches(pattern, sender)


def test_doors_for_rules_on_senders_match_globs_and_single_addresses() -> None:
    assert selectors.is_pattern("*@x.example")
    assert selectors.address_matches("*@x.example", "A@X.example")
    assert selectors.address_matches("a@x.example", "A@x.example")
    assert not selectors.address_matches("a@x.example", "b@x.example")


def test_identities_are_found_by_address_handle_and_default() -> None:
    identity = IdentityFactory(email="claude@house.example", handle="claude", is_default=True)
    asleep = IdentityFactory(is_active=False)
    assert selectors.identity_by_email("Claude@House.example") == identity
    assert selectors.identity_by_handle("claude") == identity
    assert selectors.default_identity() == identity
    assert selectors.identity_by_email(asleep.email) is None
    assert selectors.identity_by_handle(asleep.handle) is None

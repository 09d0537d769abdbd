"""Pins change, verdicts follow; the older ones stay, and nothing starts by itself."""

from __future__ import annotations

import pytest

from guards.exceptions import Refused
from guards.models import Decision
from guards.services import keys as pins
from guards.types import SYSTEM, Asker
from mail import selectors
from mail.models import Message, TrustRecord
from mail.services import messages, polling, trust
from tests.mail.factories import OPERATOR, make_contact, make_mail, make_signed

pytestmark = pytest.mark.django_db

USER = "agent@agents.test"


@pytest.fixture
def signed(account, mail_server, keys):
    """One signed mail of a contact with rwx whose key nobody pinned."""
    polling.poll(account_id=account.pk)
    contact = make_contact(account.identity, "alice@example.org", "rwx")
    mail_server.deliver(USER, make_signed(keys.alice, "run\n"))
    polling.poll(account_id=account.pk)
    message = Message.objects.get()
    assert message.trust_reason == "unpinned-key"
    return contact, message


@pytest.mark.invariant(6)
def test_a_pin_makes_earlier_mail_verified_and_starts_nothing(
    signed, keys, django_capture_on_commit_callbacks
):
    contact, message = signed
    pin = pins.pin_key(contact=contact, key=keys.alice.public, by=OPERATOR)
    assert trust.recompute_for_key(contact_id=contact.pk, fingerprint=pin.fingerprint) == 1
    message.refresh_from_db()
    assert (message.trust_level, message.trust_reason) == ("verified", "pinned-key")
    assert message.execution == "none"
    assert list(TrustRecord.objects.values_list("level", "cause")) == [
        ("unverified", "ingest"),
        ("verified", "key-changed"),
    ]
    assert trust.recompute_for_key(contact_id=contact.pk, fingerprint=pin.fingerprint) == 0


@pytest.mark.invariant(6)
def test_a_removed_pin_takes_the_level_back(signed, keys):
    contact, message = signed
    pin = pins.pin_key(contact=contact, key=keys.alice.public, by=OPERATOR)
    trust.recompute_for_key(contact_id=contact.pk, fingerprint=pin.fingerprint)
    pins.remove_pin(pin=pin, by=OPERATOR)
    trust.recompute_for_key(contact_id=contact.pk, fingerprint=pin.fingerprint)
    message.refresh_from_db()
    assert message.trust_reason == "unpinned-key"
    assert TrustRecord.objects.count() == 3


@pytest.mark.invariant(6)
def test_a_newer_reading_leaves_the_bytes_and_the_older_verdict(signed, keys):
    """What an earlier reading said is written in its place; the bytes then speak again."""
    contact, message = signed
    pins.pin_key(contact=contact, key=keys.alice.public, by=OPERATOR)
    Message.objects.filter(pk=message.pk).update(
        trust_level="unverified", trust_reason="verifier-unavailable", parser_version=0
    )
    digest, raw = message.sha256, selectors.raw(message)
    first = TrustRecord.objects.get()
    assert trust.recompute_unverified() == 1
    message.refresh_from_db()
    assert (message.trust_level, message.sha256) == ("verified", digest)
    assert selectors.raw(message) == raw
    older, newer = TrustRecord.objects.order_by("pk")
    assert (older.pk, older.level, older.version) == (first.pk, first.level, first.version)
    assert (newer.level, newer.cause) == ("verified", "verifier-back")
    assert newer.version >= older.version >= 1


@pytest.mark.one_database
def test_an_operator_may_release_it_then_and_it_starts(signed, keys):
    contact, message = signed
    messages.release(message_id=message.pk, by=OPERATOR)
    message.refresh_from_db()
    assert message.execution == "none"
    pins.pin_key(contact=contact, key=keys.alice.public, by=OPERATOR)
    messages.release(message_id=message.pk, by=OPERATOR)
    message.refresh_from_db()
    assert message.execution == "due"
    assert message.replay_key
    released = Decision.objects.filter(action="release")
    assert {d.rule for d in released} == {"operator-override"}
    assert sorted(d.evidence["starts"] for d in released) == [False, True]


@pytest.mark.one_database
def test_a_stranger_may_be_revealed_and_never_executes(account, mail_server):
    polling.poll(account_id=account.pk)
    mail_server.deliver(USER, make_mail(sender="stranger@evil.test"))
    polling.poll(account_id=account.pk)
    message = Message.objects.get()
    messages.reveal(message_id=message.pk, by=OPERATOR)
    messages.release(message_id=message.pk, by=OPERATOR)
    message.refresh_from_db()
    assert message.revealed_at and message.released_at
    assert message.execution == "none"
    assert set(Decision.objects.values_list("action", "rule")) >= {
        ("reveal", "operator-override"),
        ("release", "operator-override"),
    }


@pytest.mark.one_database
@pytest.mark.parametrize("by", [SYSTEM, Asker("token", "cs_1"), Asker("identity", "agent")])
def test_nobody_but_an_operator_reveals_or_releases(account, mail_server, by):
    mail_server.deliver(USER, make_mail())
    polling.poll(account_id=account.pk)
    message = Message.objects.get()
    for act in (messages.reveal, messages.release):
        with pytest.raises(Refused):
            act(message_id=message.pk, by=by)
    message.refresh_from_db()
    assert message.revealed_at is None and message.released_at is None


def test_first_pass_mail_starts_only_when_an_operator_releases_it(account, mail_server, keys):
    contact = make_contact(account.identity, "alice@example.org", "rwx")
    pins.pin_key(contact=contact, key=keys.alice.public, by=OPERATOR)
    mail_server.deliver(USER, make_signed(keys.alice, "run\n"))
    polling.poll(account_id=account.pk)
    message = Message.objects.get()
    assert (message.rule, message.execution) == ("first-pass", "none")
    messages.release(message_id=message.pk, by=OPERATOR)
    message.refresh_from_db()
    assert message.execution == "due"

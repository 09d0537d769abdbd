"""A yes by mail that is none: not the owner, not in time, not what was shown."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from approvals.models import Effect
from approvals.services import approvals, holds
from guards.models import ReplayEntry
from guards.services import keys as pins
from guards.services import settings as installation
from mail.models import Message, NoticeItem, Outbound
from mail.services import notices
from tests.keys import Key, Keys, public_key
from tests.mail.factories import OPERATOR, make_contact, make_signed
from tests.mail.owner import (
    ALICE,
    OWNER,
    House,
    age_notices,
    digest_of,
    dispatch,
    expire,
    nothing_left,
    opened,
    refused,
    state_of,
)

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]


@pytest.fixture
def house(told_house: House) -> House:
    return told_house


def test_an_unsigned_yes_does_nothing_and_the_owner_is_told(
    house: House, shown: NoticeItem, owner_key: Key
) -> None:
    answer = house.say_unsigned(f"approve {digest_of(shown)}")
    refused(house, shown, answer, "not-signed")
    told = opened(owner_key, house.sent_to(OWNER)[1])
    assert told["Subject"] == "Your answer did nothing"
    assert "needs the owner's signature" in told.get_content()


def test_a_yes_by_another_key_in_the_owners_name_does_nothing(
    house: House, shown: NoticeItem, keys: Keys
) -> None:
    answer = house.say(keys.mallory, f"approve {digest_of(shown)}")
    refused(house, shown, answer, "wrong-key")


def test_a_yes_by_a_pinned_contact_who_is_not_the_owner_does_nothing(
    house: House, shown: NoticeItem, keys: Keys
) -> None:
    contact = make_contact(house.account.identity, ALICE)
    pins.pin_key(contact=contact, key=public_key(keys.alice), by=OPERATOR)
    answer = house.say(keys.alice, f"approve {digest_of(shown)}", sender=ALICE)
    assert Message.objects.latest("pk").trust_level == "verified"
    refused(house, shown, answer, "not-the-owner")
    assert len(house.sent_to(OWNER)) == 1, "whoever is not the owner makes us write to nobody"


def test_the_owners_key_under_another_from_does_nothing(
    house: House, shown: NoticeItem, owner_key: Key
) -> None:
    answer = house.say(owner_key, f"approve {digest_of(shown)}", sender="other@example.org")
    refused(house, shown, answer, "not-the-owner")


def test_a_pin_in_the_address_book_makes_nobody_the_owner(
    house: House, shown: NoticeItem, keys: Keys
) -> None:
    """Somebody who can write to the database pins his own key to the owner's address."""
    contact = make_contact(house.account.identity, OWNER)
    pins.pin_key(contact=contact, key=public_key(keys.mallory), by=OPERATOR)
    answer = house.say(keys.mallory, f"approve {digest_of(shown)}")
    assert Message.objects.latest("pk").trust_level == "verified"
    refused(house, shown, answer, "wrong-key")


@pytest.mark.parametrize("word", ["approve", "reject"])
def test_a_text_changed_after_it_was_signed_says_nothing_not_even_no(
    house: House, shown: NoticeItem, owner_key: Key, word: str
) -> None:
    signed = make_signed(owner_key, f"{word} {'00' * 32}", sender=OWNER)
    answer = house.write(signed.replace(b"00" * 32, digest_of(shown).encode()))
    assert answer is not None
    assert answer.detail == "bad-signature"
    refused(house, shown, answer, "bad-signature")


def test_a_yes_by_a_revoked_owner_key_does_nothing(
    house: House, shown: NoticeItem, keys: Keys, settings: Any, tmp_path: Path
) -> None:
    path = tmp_path / "revoked.asc"
    path.write_bytes(public_key(keys.revoked, armor=True))
    settings.OWNER_FINGERPRINT, settings.OWNER_KEY_FILE = keys.revoked.fingerprint, str(path)
    answer = house.say(keys.revoked, f"approve {digest_of(shown)}")
    refused(house, shown, answer, "no-owner")


def test_a_digest_that_no_notice_showed_does_nothing(
    house: House, shown: NoticeItem, owner_key: Key
) -> None:
    answer = house.say(owner_key, f"approve {'ab' * 32}")
    refused(house, shown, answer, "unknown-digest")


def test_the_digest_of_another_draft_approves_that_one_alone(
    house: House, shown: NoticeItem, owner_key: Key
) -> None:
    age_notices(minutes=11)
    other = house.told(sender="bob@example.org")
    answer = house.say(owner_key, f"approve {digest_of(other)}")
    assert answer.reason == "done"
    dispatch()
    assert house.sent_to(ALICE) == []
    assert len(house.sent_to("bob@example.org")) == 1


def test_a_yes_after_its_day_is_over_does_nothing(
    house: House, shown: NoticeItem, owner_key: Key
) -> None:
    expire(shown)
    answer = house.say(owner_key, f"approve {digest_of(shown)}")
    assert (answer.state, answer.reason) == ("refused", "expired")
    assert nothing_left(house)
    assert state_of(shown) == "waiting"


def test_a_signature_older_than_a_day_does_nothing(
    house: House, shown: NoticeItem, owner_key: Key
) -> None:
    old = timezone.now() - timedelta(hours=25)
    answer = house.say(owner_key, f"approve {digest_of(shown)}", at=old)
    refused(house, shown, answer, "too-old")


def test_a_signature_from_before_a_restore_does_nothing(
    house: House, shown: NoticeItem, owner_key: Key
) -> None:
    installation.put(
        name="execute_not_before", value=timezone.now() + timedelta(minutes=5), by=OPERATOR
    )
    answer = house.say(owner_key, f"approve {digest_of(shown)}")
    refused(house, shown, answer, "too-old")


@pytest.mark.invariant(12)
def test_the_same_signed_text_in_another_mail_does_nothing_more(
    house: House, shown: NoticeItem, owner_key: Key
) -> None:
    raw = make_signed(owner_key, f"later {digest_of(shown)}", sender=OWNER)
    assert house.write(raw).reason == "done"  # type: ignore[union-attr]
    replayed = raw.replace(b"Subject: Signed", b"Subject: Again")
    again = house.write(replayed)
    assert again is not None
    assert (again.state, again.reason) == ("refused", "replayed")
    assert ReplayEntry.objects.filter(subject_type="mail.mailed_answer").count() == 1


def test_a_draft_that_changed_after_the_notice_is_not_sent_and_told_of_afresh(
    house: House, shown: NoticeItem, owner_key: Key
) -> None:
    Outbound.objects.filter(pk=shown.hold.subject_id).update(text="Something else.\n")
    answer = house.say(owner_key, f"approve {digest_of(shown)}")
    assert (answer.state, answer.reason) == ("refused", "changed")
    assert "text_sha256" in answer.detail
    assert nothing_left(house)
    age_notices(minutes=11)
    fresh = notices.notify()
    assert fresh is not None
    item = fresh.items.get()
    assert "Something else." in opened(owner_key, house.sent_to(OWNER)[-1]).get_content()
    assert digest_of(item) != digest_of(shown)
    assert house.say(owner_key, f"approve {digest_of(item)}").reason == "done"


def test_what_changes_between_the_yes_and_the_contact_is_not_sent(
    house: House, shown: NoticeItem, owner_key: Key
) -> None:
    """Source and draft are read again at the mark, in the transaction before the contact."""
    house.say(owner_key, f"approve {digest_of(shown)}")
    source = Message.objects.get(pk=shown.hold.source_id)
    Message.objects.filter(pk=source.pk).update(sender="mallory@example.org")
    dispatch()
    effect = Effect.objects.get(approval=shown.approval)
    assert (effect.phase, effect.detail["field"]) == ("cancelled", "source_sender")
    assert [mail.recipients for mail in house.server.sent] == [(OWNER,)]


def test_a_review_in_the_console_takes_the_answer_over(
    house: House, shown: NoticeItem, owner_key: Key
) -> None:
    console = holds.open_for_review(hold_id=shown.hold_id, by=OPERATOR)
    answer = house.say(owner_key, f"approve {digest_of(shown)}")
    assert answer.reason in ("changed", "unknown-digest")
    approvals.approve(approval_id=console.pk, by=OPERATOR, via="console", digest=console.digest)
    dispatch()
    assert len(house.sent_to(ALICE)) == 1


def test_a_yes_to_what_was_decided_before_does_nothing_more(
    house: House, shown: NoticeItem, owner_key: Key
) -> None:
    house.say(owner_key, f"reject {digest_of(shown)} no")
    answer = house.say(owner_key, f"approve {digest_of(shown)}")
    assert (answer.state, answer.reason) == ("refused", "already-decided")
    assert nothing_left(house)

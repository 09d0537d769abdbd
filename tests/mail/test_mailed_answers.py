"""Answers by mail: one order that the owner's key signed does something, once; a no is easier."""

from __future__ import annotations

import hashlib
from datetime import timedelta

import pytest
from django.db import DatabaseError, transaction
from django.utils import timezone

from approvals.models import Approval, Effect, Hold
from guards import triggers
from guards.models import Decision
from guards.services import keys as pins
from mail.models import MailedAnswer, Message, NoticeItem, OwnerNotice
from mail.services import mailed_answers, notices
from pipelines.models import Pipeline
from pipelines.services import intake
from teams.models import Event
from tests.keys import Key, public_key
from tests.mail.factories import OPERATOR, make_contact, make_signed
from tests.mail.owner import (
    ALICE,
    OWNER,
    House,
    age_notices,
    digest_of,
    dispatch,
    nothing_left,
    opened,
    state_of,
)

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]


@pytest.fixture
def house(told_house: House) -> House:
    return told_house


def test_the_owners_signed_yes_sends_the_reply_once(
    house: House, shown: NoticeItem, owner_key: Key
) -> None:
    answer = house.say(owner_key, f"approve {digest_of(shown)}\n")
    assert (answer.state, answer.reason, answer.strength) == ("done", "done", "witnessed")
    assert (answer.verb, answer.digest) == ("approve", digest_of(shown))
    assert answer.signer == owner_key.fingerprint
    dispatch()
    assert len(house.sent_to(ALICE)) == 1
    approval = Approval.objects.get(pk=shown.approval_id)
    assert approval.state == "consumed"
    assert approval.decided_via == "mail"
    assert approval.decided_by == f"owner:{owner_key.fingerprint}"
    assert state_of(shown) == "sent"


def test_what_was_shown_is_what_leaves(house: House, shown: NoticeItem, owner_key: Key) -> None:
    told = opened(owner_key, house.sent_to(OWNER)[0]).get_content()
    house.say(owner_key, f"approve {digest_of(shown)}")
    dispatch()
    (left,) = house.sent_to(ALICE)
    assert hashlib.sha256(left).hexdigest() in told


def test_it_is_on_record_with_device_and_strength(
    house: House, shown: NoticeItem, owner_key: Key
) -> None:
    answer = house.say(owner_key, f"approve {digest_of(shown)}")
    facts = Event.objects.get(kind="answer.done").facts
    assert facts["strength"] == "witnessed"
    assert facts["device"] == f"openpgp:{owner_key.fingerprint}"
    assert facts["message_id"] == answer.message.message_id
    assert facts["digest"] == digest_of(shown)
    decision = Decision.objects.get(action="answer")
    assert (decision.verdict, decision.rule) == ("allow", "owner-answer")
    assert decision.asker == f"owner:{owner_key.fingerprint}"


@pytest.mark.parametrize(
    "text",
    [
        "Approve {digest}  \n-- \nOlga\n",
        "approve {digest}\n\nOn Tue, 1 Dec 2026, Agent wrote:\n> approve {digest}\n> reject it\n",
        "approve\n{digest}\n",
    ],
)
def test_what_mail_programs_add_changes_nothing(
    house: House, shown: NoticeItem, owner_key: Key, text: str
) -> None:
    answer = house.say(owner_key, text.format(digest=digest_of(shown)))
    assert answer.reason == "done"


def test_a_yes_sent_twice_is_one_effect(house: House, shown: NoticeItem, owner_key: Key) -> None:
    for _ in range(2):
        house.say(owner_key, f"approve {digest_of(shown)}", at=timezone.now())
        dispatch()
    assert Effect.objects.filter(approval=shown.approval).count() == 1
    assert len(house.sent_to(ALICE)) == 1


def test_an_answer_that_a_crash_cut_off_is_asked_anew_and_done_once(
    house: House, shown: NoticeItem, owner_key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the yes and its record: the same order again, the same effect, one contact."""

    def die(*_: object, **__: object) -> bool:
        raise KeyboardInterrupt

    raw = make_signed(owner_key, f"approve {digest_of(shown)}", sender=OWNER)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(mailed_answers, "_record", die)
        house.write(raw)
    assert Effect.objects.filter(approval=shown.approval).count() == 1
    assert mailed_answers.settle_due() == 1
    answer = MailedAnswer.objects.get()
    assert (answer.state, answer.reason) == ("done", "done")
    dispatch()
    assert len(house.sent_to(ALICE)) == 1


# --- a no, later, pause, stop ---------------------------------------------------------------------


def test_a_signed_no_reaches_whoever_asked_with_its_reason(
    house: House, shown: NoticeItem, owner_key: Key
) -> None:
    answer = house.say(owner_key, f"reject {digest_of(shown)} the price\nis wrong\n")
    assert answer.reason == "done"
    hold = Hold.objects.get(pk=shown.hold_id)
    assert (hold.state, hold.answer) == ("rejected", "the price is wrong")
    assert nothing_left(house)


@pytest.mark.parametrize("word", ["reject", "no", "stop"])
def test_a_no_needs_no_signature(house: House, shown: NoticeItem, word: str) -> None:
    answer = house.say_unsigned(f"{word} {digest_of(shown)} not now")
    assert (answer.reason, answer.strength) == ("done", "reported")
    assert state_of(shown) == "rejected"
    assert Approval.objects.get(pk=shown.approval_id).decided_by == "owner:reported"
    facts = Event.objects.get(kind="answer.done").facts
    assert (facts["strength"], facts["device"]) == ("reported", "unsigned mail")


@pytest.mark.parametrize("signed", [True, False])
def test_a_yes_needs_a_signature_and_a_later_does_not(
    house: House, shown: NoticeItem, owner_key: Key, signed: bool
) -> None:
    text = f"later {digest_of(shown)}"
    answer = house.say(owner_key, text) if signed else house.say_unsigned(text)
    assert answer.reason == "done"
    assert state_of(shown) == "waiting"
    yes = house.say(owner_key, f"approve {digest_of(shown)}")
    assert yes.reason == "done"


def test_later_keeps_the_next_notice_back_for_a_day(house: House, shown: NoticeItem) -> None:
    house.say_unsigned(f"later {digest_of(shown)}")
    age_notices(hours=23)
    assert notices.due_holds() == []
    age_notices(hours=2)
    assert notices.due_holds() == []
    triggers.lift("mail")
    MailedAnswer.objects.update(settled_at=timezone.now() - timedelta(hours=25))
    triggers.install("mail")
    assert len(notices.due_holds()) == 1


def test_pause_voids_the_snapshot_and_ends_the_notices(
    house: House, shown: NoticeItem, owner_key: Key
) -> None:
    assert house.say_unsigned(f"pause {digest_of(shown)}").reason == "done"
    assert state_of(shown) == "waiting"
    assert house.say(owner_key, f"approve {digest_of(shown)}").reason == "changed"
    age_notices(hours=25)
    assert notices.due_holds() == []
    assert nothing_left(house)


def test_stop_cancels_a_yes_that_no_worker_has_taken(
    house: House, shown: NoticeItem, owner_key: Key
) -> None:
    house.say(owner_key, f"approve {digest_of(shown)}")
    assert house.say_unsigned(f"stop {digest_of(shown)} wait").reason == "done"
    assert nothing_left(house)
    assert Effect.objects.get(approval=shown.approval).phase == "cancelled"


# --- never work -----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["approve {digest}", "@agent approve {digest} then factor 91"])
def test_an_answer_starts_no_pipeline_whatever_its_sender_may(
    house: House, shown: NoticeItem, owner_key: Key, text: str
) -> None:
    contact = make_contact(house.account.identity, OWNER, "rwx")
    pins.pin_key(contact=contact, key=public_key(owner_key), by=OPERATOR)
    house.say(owner_key, text.format(digest=digest_of(shown)))
    message = Message.objects.latest("pk")
    assert message.trust_level == "verified"
    assert (message.rule, message.execution) == ("owner-answer", "none")
    assert intake.take_in(message_id=message.pk) is None
    assert not Pipeline.objects.exists()


def test_the_same_sender_still_starts_work_with_other_mail(
    house: House, shown: NoticeItem, owner_key: Key
) -> None:
    contact = make_contact(house.account.identity, OWNER, "rwx")
    pins.pin_key(contact=contact, key=public_key(owner_key), by=OPERATOR)
    quoted = f"\n\nOn Tue, 1 Dec 2026, Agent wrote:\n> approve {digest_of(shown)}\n"
    assert house.write(make_signed(owner_key, f"please factor 91{quoted}", sender=OWNER)) is None
    assert Message.objects.latest("pk").execution == "due"


def test_an_answer_that_is_due_again_after_a_release_starts_nothing_either(
    house: House, shown: NoticeItem, owner_key: Key
) -> None:
    contact = make_contact(house.account.identity, OWNER, "rwx")
    pins.pin_key(contact=contact, key=public_key(owner_key), by=OPERATOR)
    house.say(owner_key, f"approve {digest_of(shown)}")
    message = Message.objects.latest("pk")
    Message.objects.filter(pk=message.pk).update(execution="due")
    assert intake.take_in(message_id=message.pk) is None
    message.refresh_from_db()
    assert (message.execution, message.rule) == ("refused", "owner-answer")


def test_the_record_of_an_answer_cannot_be_rewritten(
    house: House, shown: NoticeItem, owner_key: Key
) -> None:
    house.say_unsigned(f"approve {digest_of(shown)}")
    with pytest.raises(DatabaseError), transaction.atomic():
        MailedAnswer.objects.update(reason="done", state="done")
    with pytest.raises(DatabaseError), transaction.atomic():
        NoticeItem.objects.update(approval=None)
    with pytest.raises(DatabaseError), transaction.atomic():
        OwnerNotice.objects.update(encrypted_to="")

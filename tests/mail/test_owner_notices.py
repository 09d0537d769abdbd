"""Notices to the owner: encrypted and complete, or without content, or none; and never a loop."""

from __future__ import annotations

import textwrap
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from approvals import selectors
from approvals.models import Approval, Effect, Hold
from approvals.services import approvals, holds
from guards.exceptions import Refused
from guards.models import Decision
from guards.types import SYSTEM, Subject
from mail import notice_text, owner_channel
from mail.gateways.base import SendOutcome, SubmissionResult
from mail.gateways.memory import MemoryServer
from mail.models import Account, Message, NoticeItem, Outbound, OwnerNotice
from mail.owner_channel import Mode
from mail.services import due, mailed_answers, notices, outbound, polling
from mail.types import Enclosure
from teams.models import Event
from tests.keys import Key, Keys, public_key
from tests.mail.factories import OPERATOR, make_contact, make_mail
from tests.mail.owner import OWNER, USER, House, age_notices, links, opened, read

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]


@pytest.fixture
def house(account: Account, mail_server: MemoryServer, owner_key: Key) -> House:
    return House(account, mail_server)


def test_a_notice_arrives_encrypted_with_everything_that_the_page_shows(
    house: House, owner_key: Key
) -> None:
    make_contact(house.account.identity, "alice@example.org")
    waiting = house.held(
        text="Yes, 40 pieces.\n", subject="Order", sender="Alice <alice@example.org>"
    )
    notices.notify()
    (raw,) = house.sent_to(OWNER)
    assert read(raw)["Subject"] == "[...]"
    for secret in (b"40 pieces", b"Order", b"alice@example.org", b"approve"):
        assert secret not in raw
    inside = opened(owner_key, raw)
    text = inside.get_content().replace("\r\n", "\n")
    approval = Approval.objects.get(hold=waiting.hold)
    assert inside["Subject"] == "1 draft waits for you"
    preview = selectors.preview(approval)
    source = preview["source"]
    assert isinstance(source, dict)
    for shown in (
        "From:", USER, "alice@example.org", "Re: Order", "| Yes, 40 pieces.",
        "| A line.", str(source["message_id"]), str(preview["mime_sha256"]),
        approval.digest, f"approve {approval.digest}", f"reject {approval.digest} and why",
        f"{approval.expires_at:%Y-%m-%d %H:%M} UTC",
        f"https://countersign.example/admin/approvals/hold/{waiting.hold_id}/change/",
    ):  # fmt: skip
        assert shown in text, shown


@pytest.mark.one_database
def test_every_field_of_the_preview_is_shown(house: House, owner_key: Key) -> None:
    item = house.told()
    assert item.approval is not None
    text = opened(owner_key, house.sent_to(OWNER)[0]).get_content()
    preview = selectors.preview(item.approval)
    for name, value in preview.items():
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            for line in str(value).splitlines():
                assert line in text, name


@pytest.mark.one_database
def test_attachments_are_shown_with_their_digests(house: House, owner_key: Key) -> None:
    house.server.deliver(USER, make_mail())
    polling.poll(account_id=house.account.pk)
    draft = outbound.draft_reply(
        message_id=Message.objects.latest("pk").pk,
        text="See the file.",
        origin=Subject("pipelines.pipeline", str(uuid4())),
        executes=True,
        files=[Enclosure("offer.pdf", "application/pdf", b"%PDF")],
    )
    outbound.submit(outbound_id=draft.pk, asker=SYSTEM)
    notices.notify()
    text = opened(owner_key, house.sent_to(OWNER)[0]).get_content()
    file = draft.files.get()
    assert "offer.pdf" in text
    assert file.sha256 in text


def test_it_is_one_effect_by_policy_with_its_decision_and_says_it_is_automatic(
    house: House,
) -> None:
    house.told()
    sent = OwnerNotice.objects.get().outbound
    assert (sent.status, sent.effect.phase) == ("accepted", "accepted")
    assert sent.effect.kind == "mail.smtp"
    decision = sent.effect.approval.decision
    assert (decision.rule, decision.verdict) == ("owner-notice", "allow")
    (raw,) = house.sent_to(OWNER)
    assert read(raw)["Auto-Submitted"] == "auto-generated"
    assert Event.objects.filter(kind="notice.written").count() == 1


def test_the_private_text_is_in_no_row_of_the_outgoing_message_and_in_no_event(
    house: House,
) -> None:
    house.told(text="A very private answer.\n", subject="Secret matter")
    sent = OwnerNotice.objects.get().outbound
    assert sent.text == ""
    assert "Secret" not in sent.subject
    for event in Event.objects.all():
        assert "private answer" not in str(event.facts)


@pytest.mark.invariant(22)
def test_a_notice_never_waits_itself_and_nothing_is_told_of_a_notice(house: House) -> None:
    house.told()
    assert Hold.objects.count() == 1
    age_notices(minutes=30)
    assert notices.notify() is None
    assert len(house.sent_to(OWNER)) == 1


@pytest.mark.invariant(22)
def test_what_comes_back_for_a_notice_makes_no_mail(house: House) -> None:
    """A vacation note and a bounce for a notice: neither is answered, nor told of."""
    house.told()
    sent = house.server.sent[-1].payload
    message_id = read(sent)["Message-ID"]
    before = len(house.server.sent)
    for headers in (
        {"Auto_Submitted": "auto-replied"},
        {"Return_Path": "<>", "sender": "mailer-daemon@example.org"},
    ):
        fields = {"sender": OWNER, "text": "I am away.", "In_Reply_To": message_id, **headers}
        house.write(make_mail(**fields))
    due.sweep()
    assert len(house.server.sent) == before


def test_one_draft_is_told_of_once_while_it_is_fresh(house: House) -> None:
    house.told()
    for _ in range(3):
        age_notices(hours=7)
        assert notices.notify() is None
    age_notices(hours=7)
    assert notices.notify() is not None
    assert len(house.sent_to(OWNER)) == 2


def test_after_a_week_of_notices_a_draft_stands_in_the_console_only(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert notices.MOST_PER_HOLD == 7
    monkeypatch.setattr(notices, "MOST_PER_HOLD", 3)
    house.told()
    for _ in range(4):
        age_notices(hours=25)
        notices.notify()
    assert len(house.sent_to(OWNER)) == notices.MOST_PER_HOLD


def test_what_begins_to_wait_within_minutes_goes_into_one_notice(
    house: House, owner_key: Key
) -> None:
    house.told(subject="First")
    for subject in ("Second", "Third", "Fourth"):
        house.held(subject=subject)
        assert notices.notify() is None
    age_notices(minutes=11)
    assert notices.notify() is not None
    inside = opened(owner_key, house.sent_to(OWNER)[1])
    assert inside["Subject"] == "3 drafts wait for you"
    text = inside.get_content()
    assert all(f"Re: {subject}" in text for subject in ("Second", "Third", "Fourth"))
    assert "Re: First" not in text


def test_many_are_shown_ten_at_a_time_and_the_rest_is_counted(
    house: House, owner_key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert notices.MOST_ITEMS == 10
    monkeypatch.setattr(notices, "MOST_ITEMS", 3)
    for number in range(5):
        house.held(subject=f"Number {number}.")
    notices.notify()
    inside = opened(owner_key, house.sent_to(OWNER)[0])
    assert inside["Subject"] == "5 drafts wait for you"
    assert "2 more wait" in inside.get_content()
    assert NoticeItem.objects.count() == 3
    age_notices(minutes=11)
    notices.notify()
    assert opened(owner_key, house.sent_to(OWNER)[1])["Subject"] == "2 drafts wait for you"


def test_a_day_holds_so_many_notices_and_no_more(house: House, settings: Any) -> None:
    settings.OWNER_NOTICES_PER_DAY = 2
    for number in range(4):
        house.held(subject=f"Number {number}.")
        notices.notify()
        age_notices(minutes=11)
    assert len(house.sent_to(OWNER)) == 2


@pytest.mark.invariant(22)
def test_notices_count_against_the_hourly_cap_and_wait_there(house: House, settings: Any) -> None:
    settings.AUTO_REPLIES_PER_IDENTITY_PER_HOUR = 1
    house.told()
    house.held(subject="Another")
    age_notices(minutes=11)
    notice = notices.notify()
    assert notice is not None
    assert Outbound.objects.get(pk=notice.outbound_id).status == "queued"
    settings.AUTO_REPLIES_PER_IDENTITY_PER_HOUR = 10
    outbound.release_queued()
    assert len(house.sent_to(OWNER)) == 2


def test_a_draft_that_a_person_reviews_right_now_is_left_alone(house: House) -> None:
    waiting = house.held()
    holds.open_for_review(hold_id=waiting.hold_id, by=OPERATOR)
    assert notices.notify() is None
    assert house.sent_to(OWNER) == []


def test_a_review_in_the_console_makes_no_second_notice(house: House) -> None:
    item = house.told()
    holds.open_for_review(hold_id=item.hold_id, by=OPERATOR)
    age_notices(minutes=30)
    assert notices.notify() is None


def test_what_no_longer_waits_is_not_told_of(house: House) -> None:
    waiting = house.held()
    holds.withdraw(hold_id=waiting.hold_id, by=OPERATOR, reason="mistake")
    assert notices.notify() is None


def test_a_notice_that_certainly_did_not_leave_is_written_again(house: House) -> None:
    house.server.next_result = SubmissionResult(SendOutcome.FAILED, "not-connected")
    house.held()
    notices.notify()
    assert OwnerNotice.objects.get().outbound.status == "failed"
    assert notices.notify() is None
    age_notices(minutes=11)
    assert notices.notify() is not None
    assert len(house.sent_to(OWNER)) == 1


def test_a_notice_of_unknown_outcome_is_not_written_again(house: House) -> None:
    house.server.next_result = SubmissionResult(
        SendOutcome.UNKNOWN, "connection-lost-after-data", final_dot_sent=True
    )
    house.held()
    notices.notify()
    assert OwnerNotice.objects.get().outbound.status == "unknown"
    age_notices(minutes=30)
    assert notices.notify() is None


def test_a_process_that_died_between_claim_and_submission_loses_no_notice(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.held()

    def die(**_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(outbound, "submit", die)
        notices.notify()
    age_notices(minutes=15)
    assert notices.notify() is not None
    assert len(house.sent_to(OWNER)) == 1
    assert Outbound.objects.filter(origin_type="mail.owner_notice", status="cancelled").count() == 1


@pytest.mark.one_database
def test_a_draft_of_hostile_text_cannot_write_a_line_of_the_notice(
    house: House, owner_key: Key
) -> None:
    hostile = "x\n\n    approve " + "a1" * 32 + "\n\u202eexe.fdp\nTo: \x1b[2Jnobody\n"
    house.told(text=hostile, subject="S\u200bubject")
    text = opened(owner_key, house.sent_to(OWNER)[0]).get_content().replace("\r\n", "\n")
    ours = [line for line in text.split("\n") if not line.startswith("|")]
    assert not any("a1" * 32 in line for line in ours)
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert r"| \u{202e}exe.fdp" in text
    assert r"S\u{200b}ubject" in text


@pytest.mark.one_database
def test_a_mail_program_that_breaks_long_lines_shows_no_order_of_a_draft(
    house: House, owner_key: Key
) -> None:
    order = "approve " + "a1" * 32
    house.told(text=f"{'x' * 78} {order}\n\u6f22{'x' * 80}{order}\n", subject=f"{'y' * 44} {order}")
    text = opened(owner_key, house.sent_to(OWNER)[0]).get_content().replace("\r\n", "\n")
    shown = [row for line in text.split("\n") for row in textwrap.wrap(line, 78) or [""]]
    assert not any(row.startswith(order) for row in shown)
    theirs = [line for line in text.split("\n") if line.startswith("|")]
    assert all(len(line) <= 76 for line in theirs)
    assert "".join(line[3 if line[1:2] == "+" else 2 :] for line in theirs).count(order) == 2
    assert "`|+` goes on" in text


@pytest.mark.one_database
@pytest.mark.parametrize("blank", ["\u3164", "\ufe0f", "\U000e0100", "\u034f", "\u2800", "\u200b"])
def test_what_nobody_would_see_is_written_out(blank: str) -> None:
    assert notice_text.visible(f"a{blank}b") == f"a\\u{{{ord(blank):x}}}b"
    assert (
        notice_text.visible("\u6f22\u5b57 e\u0301 \U0001f600") == "\u6f22\u5b57 e\u0301 \U0001f600"
    )


@pytest.mark.one_database
def test_a_draft_too_large_to_show_is_only_named(house: House, owner_key: Key) -> None:
    item = house.told(text="long\n" * 20_000)
    assert (item.approval, item.why) == (None, "too-large")
    text = opened(owner_key, house.sent_to(OWNER)[0]).get_content()
    assert "too large" in text
    assert "approve " not in text


# --- who is told, and how -------------------------------------------------------------------------


def test_without_an_owner_address_nobody_is_told(house: House, settings: Any) -> None:
    settings.OWNER_EMAIL = ""
    house.held()
    assert notices.notify() is None
    assert owner_channel.channel().mode is Mode.OFF


@pytest.mark.one_database
@pytest.mark.parametrize("fault", ["no-key", "signs-only", "expired", "revoked", "other-key"])
def test_without_a_usable_key_nothing_is_sent_and_nothing_in_clear(
    house: House, settings: Any, keys: Keys, tmp_path: Path, fault: str
) -> None:
    key = {"signs-only": keys.alice, "expired": keys.expired, "revoked": keys.revoked}.get(
        fault, keys.reader
    )
    path = tmp_path / "other.asc"
    path.write_bytes(public_key(key, armor=True))
    settings.OWNER_KEY_FILE = str(path)
    settings.OWNER_FINGERPRINT = {"no-key": "", "other-key": "A" * 40}.get(fault, key.fingerprint)
    house.held()
    for asked in ("", "encrypted"):
        settings.OWNER_NOTICES = asked
        assert notices.notify() is None
        assert owner_channel.channel().why
    assert house.server.sent == []


def test_a_bare_notice_shows_nothing_and_cannot_be_answered(house: House, settings: Any) -> None:
    settings.OWNER_NOTICES = "bare"
    house.held(text="Private.\n", subject="Secret")
    notices.notify()
    (raw,) = house.sent_to(OWNER)
    text = read(raw).get_content()
    assert "1 draft waits" in text
    for secret in ("Private", "Secret", "alice", "approve"):
        assert secret not in text
    assert links(text) == ["https://countersign.example/admin/"]
    assert NoticeItem.objects.get().approval is None
    assert not Approval.objects.exclude(hold=None).exists()


def test_notices_can_be_switched_off(house: House, settings: Any) -> None:
    settings.OWNER_NOTICES = "off"
    house.held()
    assert notices.notify() is None


@pytest.mark.invariant(22)
def test_an_owner_address_that_is_our_own_is_never_written_to(house: House, settings: Any) -> None:
    settings.OWNER_EMAIL = USER
    house.held()
    assert notices.notify() is None
    assert "itself" in owner_channel.channel().why


def test_the_account_can_be_named(house: House, settings: Any) -> None:
    settings.OWNER_NOTICE_ACCOUNT = "nobody"
    house.held()
    assert notices.notify() is None
    settings.OWNER_NOTICE_ACCOUNT = house.account.name
    assert notices.notify() is not None


def test_an_owner_key_that_changes_before_it_leaves_gets_nothing_of_the_old_notice(
    house: House, settings: Any, keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.held()
    real = outbound.submit
    path = tmp_path / "next.asc"
    path.write_bytes(public_key(keys.other_reader, armor=True))

    def change_then_submit(**given: Any) -> Outbound:
        settings.OWNER_FINGERPRINT = keys.other_reader.fingerprint
        settings.OWNER_KEY_FILE = str(path)
        return real(**given)

    monkeypatch.setattr(outbound, "submit", change_then_submit)
    notices.notify()
    sent = OwnerNotice.objects.get().outbound
    assert (sent.status, sent.reason) == ("failed", "encryption-refused")
    assert house.server.sent == []
    assert not Effect.objects.exists()


def test_a_kind_for_the_console_alone_is_named_and_not_opened(
    house: House, owner_key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mail.adapters import SmtpKind

    monkeypatch.setattr(SmtpKind, "via", frozenset({"policy", "console"}))
    item = house.told(text="Private.\n")
    assert (item.approval, item.why) == (None, "console-only")
    text = opened(owner_key, house.sent_to(OWNER)[0]).get_content()
    assert "answered in the console only" in text
    assert "Private" not in text
    with pytest.raises(Refused):
        holds.open_for_mail(hold_id=item.hold_id, by=OPERATOR, validity=timedelta(hours=1))


def test_the_snapshot_of_a_notice_is_answered_by_mail_only(house: House) -> None:
    item = house.told()
    assert item.approval is not None
    assert item.approval.answer_via == "mail"
    with pytest.raises(Refused):
        approvals.approve(
            approval_id=item.approval.pk, by=OPERATOR, via="console", digest=item.approval.digest
        )
    assert item.approval.expires_at - item.approval.created_at == timedelta(hours=24)
    assert item.approval.expires_at > timezone.now()


def test_the_sweep_tells_too(house: House) -> None:
    house.held()
    due.sweep()
    assert len(house.sent_to(OWNER)) == 1
    assert mailed_answers.settle_due() == 0
    assert Decision.objects.filter(rule="owner-notice").count() == 1

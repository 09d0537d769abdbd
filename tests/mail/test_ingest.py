"""What ingest makes of a batch: verdicts, decisions, threads, quarantine, and what may start."""

from __future__ import annotations

import hashlib
from email.message import EmailMessage
from email.policy import SMTP

import pytest

from guards.models import CandidateKey, Decision
from guards.services import keys as pins
from guards.services import replay
from guards.types import Subject
from mail import selectors
from mail.exceptions import RawMissing
from mail.gateways import blobs
from mail.models import Location, Message, TrustRecord
from mail.services import messages, polling
from mail.signals import message_admitted
from teams.models import Event
from tests.keys import public_key
from tests.mail.factories import OPERATOR, AccountFactory, make_contact, make_mail, make_signed

pytestmark = pytest.mark.django_db

USER = "agent@agents.test"


@pytest.fixture
def settled(account):
    polling.poll(account_id=account.pk)
    return account


@pytest.fixture
def alice(settled, keys):
    """A contact with rwx and a pinned key."""
    contact = make_contact(settled.identity, "alice@example.org", "rwx")
    pins.pin_key(contact=contact, key=keys.alice.public, by=OPERATOR)
    return contact


@pytest.fixture
def admitted():
    """The messages announced as admitted."""
    seen = []

    def note(message, **_):
        seen.append(message.pk)

    message_admitted.connect(note)
    yield seen
    message_admitted.disconnect(note)


def take(settled, mail_server, *raws: bytes) -> list[Message]:
    for raw in raws:
        mail_server.deliver(USER, raw)
    polling.poll(account_id=settled.pk)
    return list(Message.objects.order_by("pk"))


@pytest.mark.fault("W21", "sister-19")
def test_signed_mail_of_a_pinned_key_is_verified_at_ingest_and_becomes_due(
    settled, mail_server, keys, alice, admitted
):
    raw = make_signed(keys.alice, "run the report\n")
    (message,) = take(settled, mail_server, raw)
    assert (message.trust_level, message.trust_reason) == ("verified", "pinned-key")
    assert message.trust_evidence["signer"] == keys.alice.fingerprint
    assert (message.action, message.verdict, message.rule) == (
        "execute",
        "allow",
        "execute-permitted",
    )
    assert message.execution == "due"
    assert admitted == [message.pk]
    assert TrustRecord.objects.filter(message=message, cause="ingest").count() == 1
    decision = Decision.objects.get(subject_type="mail.message", subject_id=str(message.pk))
    assert decision.rule == message.rule
    assert selectors.raw(message) == raw
    again = selectors.reassess(message)
    assert again.executable_text == "run the report"
    assert again.judgement.rule == "execute-permitted"


@pytest.mark.fault("sister-16")
def test_each_sender_gets_one_decision_and_a_stranger_keeps_his_address(
    settled, mail_server, keys, alice, admitted
):
    make_contact(settled.identity, "reader@example.org", "r--")
    found = take(
        settled,
        mail_server,
        make_mail(sender="stranger@evil.test"),
        make_mail(sender="reader@example.org"),
        make_mail(sender="alice@example.org"),
        make_signed(keys.alice, "alpha\n", break_body=True),
    )
    assert [(m.rule, m.verdict) for m in found] == [
        ("no-permission", "hold"),
        ("read-permitted", "allow"),
        ("trust-too-low", "hold"),
        ("trust-too-low", "hold"),
    ]
    assert found[0].sender == "stranger@evil.test"
    assert found[3].trust_reason == "bad-signature"
    assert admitted == []
    assert Decision.objects.filter(subject_type="mail.message").count() == 4


@pytest.mark.invariant(2, 12)
def test_a_signed_text_in_two_wrappings_of_one_batch_starts_once(
    settled, mail_server, keys, alice, admitted
):
    first = make_signed(keys.alice, "run\n")
    second = b"X-Extra: 1\r\n" + first
    found = take(settled, mail_server, first, second)
    assert [m.rule for m in found] == ["execute-permitted", "replayed"]
    assert admitted == [found[0].pk]


@pytest.mark.invariant(2, 12)
def test_a_copy_that_comes_later_or_to_another_mailbox_starts_nothing(
    settled, mail_server, keys, alice, admitted
):
    other = AccountFactory(identity__handle="second", identity__email="second@agents.test")
    make_contact(other.identity, "carol@example.org", "r--")
    mail_server.add_user("second@agents.test", "mailbox-secret")
    polling.poll(account_id=other.pk)
    first = make_signed(keys.alice, "run\n")
    (original,) = take(settled, mail_server, first)
    take(settled, mail_server, b"X-Extra: 1\r\n" + first)
    assert [m.rule for m in Message.objects.order_by("pk")] == ["execute-permitted", "replayed"]
    messages.take_for_execution(message_id=original.pk)
    take(settled, mail_server, b"X-Extra: 2\r\n" + first)
    assert Message.objects.latest("pk").rule == "replayed"
    assert admitted == [original.pk]


@pytest.mark.invariant(12)
def test_what_the_ledger_knows_starts_nothing(settled, mail_server, keys, alice, admitted):
    first = make_signed(keys.alice, "run\n")
    (original,) = take(settled, mail_server, first)
    replay.claim(key=original.replay_key, subject=Subject("pipelines.pipeline", "x"))
    Message.objects.update(execution="none")
    take(settled, mail_server, b"X-Extra: 1\r\n" + first)
    assert Message.objects.latest("pk").rule == "replayed"


@pytest.mark.invariant(2)
def test_a_message_is_taken_for_execution_once(settled, mail_server, keys, alice):
    (message,) = take(settled, mail_server, make_signed(keys.alice, "run\n"))
    assert messages.take_for_execution(message_id=message.pk)
    assert not messages.take_for_execution(message_id=message.pk)


@pytest.mark.invariant(3)
@pytest.mark.fault("dos-02")
def test_poison_between_two_good_mails_is_quarantined_with_its_raw_bytes(settled, mail_server):
    nested = b"".join(
        b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (n, n)
        for n in range(1000)
    )
    poison = b"From: alice@example.org\r\nSubject: deep\r\n" + nested
    found = take(settled, mail_server, make_mail(subject="one"), poison, make_mail(subject="three"))
    assert [m.subject for m in found] == ["one", "deep", "three"]
    assert [bool(m.quarantine) for m in found] == [False, True, False]
    assert selectors.raw(found[1]) == poison
    assert found[1].execution == "none"
    assert Event.objects.filter(kind="mail.quarantined").count() == 1


@pytest.mark.invariant(3)
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x00" * 50,
        b"\xff\xfe\xfd",
        b'To: "\r\n\r\nx',
        b"Subject: =?utf-16?B?2AA=?=\r\n\r\nx",
        b"Subject: a\x00b\r\nFrom: a\x00@b.c\r\n\r\nnul \x00 inside",
        b"Message-ID: <" + b"x" * 5000 + b"@y>\r\nReferences: " + b"<a@b> " * 500 + b"\r\n\r\n",
        b"From: " + b"n" * 70000 + b"@x.org\r\n\r\n",
    ],
)
def test_any_bytes_are_stored(settled, mail_server, raw):
    found = take(settled, mail_server, raw, make_mail(subject="after"))
    assert len(found) == 2
    assert found[0].sha256 == hashlib.sha256(raw).hexdigest()
    assert selectors.raw(found[0]) == raw


@pytest.mark.one_database
def test_an_answer_joins_the_thread_of_what_it_answers(settled, mail_server):
    first = make_mail(message_id="root@x.org")
    second = make_mail(message_id="two@x.org", In_Reply_To="<root@x.org>")
    third = make_mail(message_id="three@x.org", References="<root@x.org> <two@x.org>")
    found = take(settled, mail_server, first, second, third)
    assert len({m.thread_id for m in found}) == 1


@pytest.mark.one_database
@pytest.mark.fault("headers-20", "headers-21")
def test_odd_references_make_a_thread_of_their_own(settled, mail_server):
    found = take(
        settled,
        mail_server,
        make_mail(message_id="a@x.org", In_Reply_To="1234567"),
        make_mail(message_id="b@x.org", References="<never-seen@x>"),
        make_mail(message_id="c@x.org"),
    )
    assert len({m.thread_id for m in found}) == 3
    assert all(m.thread_id for m in found)


def test_an_original_that_comes_after_its_answers_joins_them(settled, mail_server):
    found = take(
        settled,
        mail_server,
        make_mail(message_id="late-1@x.org", References="<root@x.org>"),
        make_mail(message_id="late-2@x.org", References="<root@x.org>"),
        make_mail(message_id="root@x.org"),
    )
    assert len({m.thread_id for m in found}) == 1


@pytest.mark.one_database
@pytest.mark.invariant(1)
def test_half_written_bytes_under_a_digest_are_written_again(settled, mail_server):
    from pathlib import Path

    from django.core.files.storage import storages

    raw = make_mail()
    digest = hashlib.sha256(raw).hexdigest()
    path = Path(storages["mail"].path(blobs.name_of(digest)))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw[:40])
    (message,) = take(settled, mail_server, raw)
    assert selectors.raw(message) == raw
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.one_database
@pytest.mark.invariant(6)
def test_bytes_that_were_changed_in_the_store_are_an_error_and_never_returned(settled, mail_server):
    from pathlib import Path

    from django.core.files.storage import storages

    (message,) = take(settled, mail_server, make_mail())
    Path(storages["mail"].path(blobs.name_of(message.sha256))).write_bytes(b"something else")
    with pytest.raises(RawMissing):
        selectors.raw(message)


@pytest.mark.one_database
@pytest.mark.fault("pgp-verify-19")
def test_an_attached_key_waits_for_a_person_and_counts_for_nothing(settled, mail_server, keys):
    made = EmailMessage(policy=SMTP)
    made["From"], made["To"], made["Subject"] = "alice@example.org", USER, "my key"
    made.set_content("Here it is.\n")
    made.add_attachment(
        public_key(keys.alice, armor=True), maintype="application", subtype="pgp-keys"
    )
    take(settled, mail_server, made.as_bytes())
    candidate = CandidateKey.objects.get()
    assert (candidate.fingerprint, candidate.seen_from) == (
        keys.alice.fingerprint,
        "alice@example.org",
    )
    make_contact(settled.identity, "alice@example.org", "rwx")
    take(settled, mail_server, make_signed(keys.alice, "run\n"))
    assert Message.objects.latest("pk").trust_reason == "unpinned-key"


def test_a_large_batch_is_synced_as_a_whole(settled, mail_server):
    raws = [make_mail(subject=str(n)) for n in range(20)]
    found = take(settled, mail_server, *raws)
    assert [selectors.raw(m) for m in found] == raws


def test_where_a_message_lies_is_stored(settled, mail_server):
    uid = mail_server.deliver(USER, make_mail())
    polling.poll(account_id=settled.pk)
    place = Location.objects.get()
    assert (place.folder, place.uid) == ("INBOX", uid)

"""Files that leave with a message: whole, under a name that is text, bound by their digests."""

from __future__ import annotations

import hashlib
import uuid
from datetime import UTC, datetime
from email import message_from_bytes
from email.policy import default

import pytest
from hypothesis import given
from hypothesis import settings as rounds
from hypothesis import strategies as st

from approvals.services import approvals, effects, holds
from guards import openpgp
from guards.exceptions import InvalidInput
from guards.models import Identity
from guards.openpgp import SignatureOutcome
from guards.types import SYSTEM, Subject
from mail import compose, mime
from mail.adapters import SmtpKind
from mail.exceptions import RawMissing, ReplyRefused
from mail.gateways import blobs
from mail.models import Message, Outbound, OutboundFile
from mail.services import enclosures, outbound, polling
from mail.types import Enclosure
from tests.keys import Keys, pin_for, sign_detached
from tests.mail.factories import OPERATOR, make_contact, make_mail

PDF = Enclosure("02-report.pdf", "application/pdf", b"%PDF-1.7\r\n\x00\xff" * 100)
DATE = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)


def composed(*files: Enclosure, sign=None, text: str = "done\n") -> bytes:
    return compose.compose_reply(
        from_address="agent@example.net",
        from_name="Claude",
        to=("alice@example.org",),
        original=("Run it", "id@example.org", ()),
        text=text,
        automatic=True,
        message_id="reply-1@example.net",
        date=DATE,
        sign=sign,
        files=files,
    ).raw


def read_back(raw: bytes) -> list[tuple[str, str, bytes]]:
    parsed = mime.parse(raw)
    return [(p.name or "", p.type, p.content) for p in parsed.parts if p.is_attachment]


@pytest.mark.one_database
def test_a_mail_with_a_file_is_these_bytes():
    raw = composed(Enclosure("a.txt", "text/plain", b"hello"))
    head, _, body = raw.partition(b"\r\n\r\n")
    boundary = head.rpartition(b'boundary="')[2].partition(b'"')[0]

    assert b"Content-Type: multipart/mixed;" in head
    assert body == (
        b"--" + boundary + b"\r\n"
        b'Content-Type: text/plain; charset="us-ascii"\r\n'
        b"Content-Transfer-Encoding: 7bit\r\n\r\ndone\r\n\r\n"
        b"--" + boundary + b"\r\n"
        b"Content-Type: text/plain\r\n"
        b"Content-Transfer-Encoding: base64\r\n"
        b'Content-Disposition: attachment;\r\n filename="a.txt"\r\n\r\n'
        b"aGVsbG8=\r\n\r\n"
        b"--" + boundary + b"--\r\n"
    )


@pytest.mark.one_database
def test_the_text_comes_first_and_the_files_come_back_whole():
    raw = composed(PDF, Enclosure("b.txt", "text/plain", b""))

    assert mime.parse(raw).text == "done\n"
    assert read_back(raw) == [
        ("02-report.pdf", "application/pdf", PDF.content),
        ("b.txt", "text/plain", b""),
    ]
    assert raw.isascii()
    assert max(map(len, raw.split(b"\r\n"))) <= 78
    assert b"\n" not in raw.replace(b"\r\n", b"")


@pytest.mark.one_database
@pytest.mark.fault("sister-25", "attachments-08")
@pytest.mark.parametrize(
    "name",
    [
        "plain.pdf",
        "rapport été.pdf",
        "報告書.pdf",
        "a'b%20c.txt",
        "semi;colon.txt",
        "--output=x",
        "é" * 150 + ".pdf",
        "long " * 30 + ".txt",
        "tick*'`.txt",
    ],
)
def test_a_name_comes_back_as_it_was_with_us_and_with_others(name):
    raw = composed(Enclosure(name, "application/pdf", b"x"))

    (attachment,) = message_from_bytes(raw, policy=default).iter_attachments()
    assert attachment.get_filename() == name
    assert read_back(raw)[0][0] == name


@pytest.mark.one_database
@given(st.text(min_size=1, max_size=120), st.binary(max_size=400))
@rounds(max_examples=60, deadline=None)
def test_whatever_is_accepted_comes_back_and_nothing_else_does(name, content):
    try:
        raw = composed(Enclosure(name, "application/x-thing", content))
    except InvalidInput as refused:
        assert refused.field == "files"
        return
    assert read_back(raw) == [(name, "application/x-thing", content)]
    headers = [field for field, _ in mime.parse(raw).headers]
    assert headers.count("content-type") == 1
    assert "bcc" not in headers


@pytest.mark.one_database
@pytest.mark.fault("sister-24")
@pytest.mark.parametrize(
    ("name", "media_type", "words"),
    [
        ("a\r\nBcc: eve@example.org", "text/plain", "U+000D"),
        ("a\nb", "text/plain", "U+000A"),
        ("a\0b", "text/plain", "U+0000"),
        ("=?utf-8?q?a=0Ab?=", "text/plain", "U+000A"),
        ("../../x", "text/plain", "is a path"),
        ("a\\b", "text/plain", "is a path"),
        ("", "text/plain", "1 to 200"),
        ("x" * 201, "text/plain", "1 to 200"),
        ("a", "text/plain\r\nBcc: eve@example.org", "no media type"),
        ("a", 'text/plain; x="y"', "no media type"),
    ],
)
def test_a_name_or_type_that_could_be_more_than_that_is_refused(name, media_type, words):
    with pytest.raises(InvalidInput) as refused:
        composed(Enclosure(name, media_type, b"x"))

    assert refused.value.field == "files"
    assert words in refused.value.detail


@pytest.mark.one_database
@pytest.mark.parametrize("media_type", ["message/rfc822", "multipart/mixed", "Multipart/Signed"])
def test_a_mail_inside_a_mail_is_a_file_and_no_structure(media_type):
    inner = b'Content-Type: multipart/mixed; boundary="x"\r\n\r\n--x\r\n\r\nhi\r\n--x--\r\n'
    raw = composed(Enclosure("mail.eml", media_type, inner))

    assert read_back(raw) == [("mail.eml", "application/octet-stream", inner)]


@pytest.mark.one_database
@pytest.mark.fault("sister-22")
def test_a_text_that_holds_the_boundary_gets_another():
    first = composed(PDF)
    boundary = first.partition(b'boundary="')[2].partition(b'"')[0].decode()
    second = composed(PDF, text=f"--{boundary}--\n")

    assert read_back(second) == [(PDF.name, PDF.type, PDF.content)]
    assert mime.parse(second).text == f"--{boundary}--\n"


@pytest.mark.one_database
def test_the_signature_covers_the_text_and_the_files(keys: Keys):
    def sign(payload: bytes) -> openpgp.Signature:
        return openpgp.Signature(sign_detached(keys.alice, payload), "pgp-sha256")

    raw = composed(PDF, sign=sign)
    parsed = mime.parse(raw)
    facts = parsed.facts
    assert facts.structure == "signed"
    assert facts.signed is not None and facts.signature is not None
    pins = [pin_for(keys.alice, "alice@example.org")]

    def verify(signed: bytes) -> SignatureOutcome:
        return (
            openpgp.verifier()
            .verify(signed=signed, signature=facts.signature or b"", pins=pins, now=None)
            .outcome
        )

    assert verify(facts.signed) is SignatureOutcome.GOOD
    assert all(part.is_signed for part in parsed.parts if not part.is_signature)
    assert read_back(raw) == [(PDF.name, PDF.type, PDF.content)]
    spoiled = facts.signed.replace(b"JVBE", b"KVBE", 1)
    assert spoiled != facts.signed
    assert verify(spoiled) is not SignatureOutcome.GOOD


# --- on the way -----------------------------------------------------------------------------------


@pytest.fixture
def asked(account, mail_server) -> Message:
    polling.poll(account_id=account.pk)
    mail_server.deliver("agent@agents.test", make_mail(subject="Please"))
    polling.poll(account_id=account.pk)
    return Message.objects.latest("pk")


def drafted(message: Message, *files: Enclosure, origin: Subject | None = None) -> Outbound:
    return outbound.draft_reply(
        message_id=message.pk,
        text="Here it is.\n",
        origin=origin or Subject("pipelines.pipeline", str(uuid.uuid4())),
        executes=True,
        files=files,
    )


@pytest.mark.one_database
def test_a_reply_leaves_with_its_files(asked, mail_server):
    sent = outbound.submit(outbound_id=drafted(asked, PDF).pk, asker=SYSTEM)

    assert sent.status == "accepted"
    assert read_back(mail_server.sent[-1].payload) == [(PDF.name, PDF.type, PDF.content)]
    row = sent.files.get()
    assert (row.name, row.type, row.size) == (PDF.name, PDF.type, len(PDF.content))
    assert blobs.get(row.sha256) == PDF.content


def test_a_draft_that_is_written_again_has_the_files_of_the_last_time(asked):
    origin = Subject("pipelines.pipeline", str(uuid.uuid4()))
    first = drafted(asked, PDF, origin=origin)
    again = drafted(asked, origin=origin)

    assert first.pk == again.pk
    assert not again.files.exists()


@pytest.fixture
def held(asked, account) -> Outbound:
    Identity.objects.filter(pk=account.identity_id).update(reply_policy="approve")
    return outbound.submit(outbound_id=drafted(asked, PDF).pk, asker=SYSTEM)


def test_a_person_reads_the_files_and_exactly_they_leave(held, mail_server):
    frozen = SmtpKind().freeze(outbound.subject_of(held))
    file = {
        "name": PDF.name,
        "type": PDF.type,
        "size": len(PDF.content),
        "sha256": hashlib.sha256(PDF.content).hexdigest(),
    }
    assert frozen.preview["attachments"] == frozen.facts["files"] == [file]

    approval = holds.open_for_review(hold_id=held.hold_id, by=OPERATOR)
    effect = approvals.approve(
        approval_id=approval.pk, by=OPERATOR, via="console", digest=approval.digest
    )
    assert effects.dispatch(effect_id=effect.pk).phase == "accepted"
    assert read_back(mail_server.sent[-1].payload) == [(PDF.name, PDF.type, PDF.content)]


@pytest.mark.one_database
@pytest.mark.invariant(18)
@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.update(sha256="0" * 64),
        lambda rows: rows.update(name="harmless.txt"),
        lambda rows: rows.delete(),
    ],
    ids=["other bytes", "another name", "no file"],
)
def test_a_file_that_changes_after_it_was_shown_prevents_the_contact(held, mail_server, change):
    approval = holds.open_for_review(hold_id=held.hold_id, by=OPERATOR)
    change(OutboundFile.objects.filter(outbound=held))

    with pytest.raises(Exception, match="files changed"):
        approvals.approve(
            approval_id=approval.pk, by=OPERATOR, via="console", digest=approval.digest
        )
    assert mail_server.submissions == 0


@pytest.mark.one_database
def test_bytes_that_the_store_lost_or_has_otherwise_are_not_sent(asked, mail_server):
    draft = drafted(asked, PDF)
    OutboundFile.objects.filter(outbound=draft).update(sha256="0" * 64)

    with pytest.raises(RawMissing):
        SmtpKind().freeze(outbound.subject_of(draft))
    assert outbound.submit(outbound_id=draft.pk, asker=SYSTEM).reason == "raw-missing"
    assert mail_server.submissions == 0


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("most", "value", "rule"),
    [("MAX_FILES", 1, "too-many-files"), ("MAX_BYTES", 9, "files-too-large")],
)
def test_more_than_a_mail_carries_is_refused_before_it_is_written(
    asked, monkeypatch, most, value, rule
):
    one, two = (Enclosure(name, "text/plain", b"12345") for name in ("a", "b"))
    monkeypatch.setattr(enclosures, most, value)

    assert drafted(asked, one).files.count() == 1
    with pytest.raises(InvalidInput) as refused:
        drafted(asked, one, two)
    assert (refused.value.rule, refused.value.field) == (rule, "files")


def test_a_name_that_cannot_travel_is_refused_before_anything_is_written(asked):
    with pytest.raises(InvalidInput):
        drafted(asked, Enclosure("a\r\nb", "text/plain", b"x"))
    assert not Outbound.objects.exists()


# --- a message that answers none ------------------------------------------------------------------


def new(account, to: str = "bob@example.net", **fields) -> Outbound:
    return outbound.draft_new(
        account=account,
        to=to,
        subject=fields.pop("subject", "News"),
        text="Text.\n",
        origin=fields.pop("origin", Subject("pipelines.send", "1")),
        files=(PDF,),
    )


@pytest.mark.one_database
def test_a_new_message_needs_w_for_its_recipient(account, mail_server):
    make_contact(account.identity, "bob@example.net", "r-x")
    with pytest.raises(ReplyRefused) as refused:
        new(account)
    assert refused.value.rule == "no-write"

    make_contact(account.identity, "eve@example.net", "-w-")
    sent = outbound.submit(outbound_id=new(account, "eve@example.net").pk, asker=SYSTEM)
    assert (sent.status, mail_server.sent[-1].recipients) == ("accepted", ("eve@example.net",))


def test_an_origin_has_one_new_message_ever(account):
    make_contact(account.identity, "bob@example.net", "-w-")
    assert new(account).pk == new(account, subject="Other").pk


@pytest.mark.one_database
def test_a_new_message_that_is_held_shows_that_it_answers_nothing(account):
    make_contact(account.identity, "bob@example.net", "-w-")
    Identity.objects.filter(pk=account.identity_id).update(reply_policy="approve")
    account.refresh_from_db()
    held = outbound.submit(outbound_id=new(account).pk, asker=SYSTEM)

    frozen = SmtpKind().freeze(outbound.subject_of(held))

    assert held.status == "held"
    assert frozen.preview["source"] is None
    assert frozen.preview["in_reply_to"] == []
    assert mime.parse(frozen.payload).subject == "News"

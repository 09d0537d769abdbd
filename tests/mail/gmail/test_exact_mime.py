"""The exact bytes of a reply: deterministic, bounded, and read again before they leave."""

from __future__ import annotations

import re
from base64 import b64decode
from dataclasses import replace
from email import message_from_bytes, policy
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mail.exceptions import ProfileRefused
from mail.gmail import exact_mime, mime_check
from tests.mail.gmail.builders import DATE, MAILBOX, reply, seen
from tests.mail.gmail.refusals import refused


def approved(raw: bytes) -> dict:
    """What an approval binds of these bytes."""
    return {**mime_check.read(raw).facts(), "mime_sha256": sha256(raw).hexdigest()}


def test_a_reply_is_these_bytes():
    assert exact_mime.build(reply()) == (
        b"From: ada@agents.example\r\n"
        b"To: bob@example.org\r\n"
        b"Subject: Re: Quarterly figures\r\n"
        b"Date: Tue, 01 Dec 2026 08:00:00 +0000\r\n"
        b"Message-ID: <reply-1@agents.example>\r\n"
        b"In-Reply-To: <q4@example.org>\r\n"
        b"References: <q2@example.org>\r\n <q3@example.org>\r\n <q4@example.org>\r\n"
        b"MIME-Version: 1.0\r\n"
        b'Content-Type: text/plain; charset="utf-8"\r\n'
        b"Content-Transfer-Encoding: base64\r\n"
        b"\r\n"
        b"VGhleSBhcmUgZmluZS4NCg==\r\n"
    )


def test_the_library_reads_the_same_from_it():
    text = "Grüße,\n\n  – Ada \n"
    raw = exact_mime.build(reply(text, subject="Re: Zahlen für Łódź 📈" * 3))
    message = message_from_bytes(raw, policy=policy.default)
    assert message["Subject"] == "Re: Zahlen für Łódź 📈" * 3
    assert message["From"].addresses[0].addr_spec == MAILBOX
    assert [one.addr_spec for one in message["To"].addresses] == ["bob@example.org"]
    assert message.get_content_type() == "text/plain"
    assert message.get_payload(decode=True).decode() == text.replace("\n", "\r\n")


@pytest.mark.parametrize(
    ("source", "answer"), [("Hi", "Re: Hi"), ("RE: Hi", "RE: Hi"), ("", "Re:")]
)
def test_a_subject_is_answered_once(source: str, answer: str):
    made = exact_mime.answer(
        seen(Subject=source), sender=MAILBOX, message_id="r@x.example", date=DATE, text="x"
    )
    assert made.subject == answer


def test_line_ends_become_one_kind_and_nothing_visible_is_trimmed():
    assert exact_mime.normalised("  a \r\n\tb\r\rc  \n\n") == "  a \n\tb\n\nc  \n\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "body_empty"),
        (" \r\n\t", "body_empty"),
        ("x" * 4001, "body_too_long"),
        ("\U0001f600" * 2049, "body_too_large"),
        ("a\n" * 2000, ""),
        ("a\x00b", "control_character"),
        ("a\x1b[2Jb", "control_character"),
        ("a\x85b", "control_character"),
        ("a\u2028b", "control_character"),
        ("pay \u202e100\u202c now", "control_character"),
        ("pay \u2067100\u2069 now", "control_character"),
        ("a\ud800b", "control_character"),
    ],
)
def test_a_text_is_within_its_bounds_or_refused(text: str, reason: str):
    if not reason:
        assert exact_mime.normalised(text) == text
        return
    with refused(reason, "body"):
        exact_mime.normalised(text)


def test_the_longest_text_fits_into_the_message():
    longest = "\U0001f600" * 2048
    subject = "Re: " + "ä" * 100
    references = (*(f"{'r' * 80}{number}@example.org" for number in range(18)), "q4@example.org")
    raw = exact_mime.build(reply(longest, subject=subject, references=references))
    assert len(raw) <= exact_mime.MAX_MIME_BYTES
    assert mime_check.read(raw).text == longest


def test_no_message_is_over_16_kib():
    long_id = "x" * 480 + "@example.org"
    big = reply("\U0001f600" * 2048, sender=f"{'a' * 60}@{'b' * 60}.example", message_id=long_id)
    assert len(exact_mime.build(big)) <= exact_mime.MAX_MIME_BYTES
    with refused("mime_too_large", "mime"):
        mime_check.read(exact_mime.build(reply()) + b"A" * exact_mime.MAX_MIME_BYTES)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"sender": "Ada <ada@agents.example>"}, "from"),
        ({"to": "bob@example.org, eve@example.org"}, "to"),
        ({"to": "bob@example.org\r\nBcc: eve@example.org"}, "to"),
        ({"subject": "a\r\nBcc: eve@example.org"}, "subject"),
        ({"subject": "a\nb"}, "subject"),
        ({"subject": " a"}, "subject"),
        ({"subject": "a\u202eb"}, "subject"),
        ({"subject": ""}, "subject"),
        ({"message_id": "a@b>\r\nX: y"}, "message_id"),
        ({"in_reply_to": "q9@example.org"}, "references"),
        ({"references": ()}, "references"),
        ({"references": ("a b@c", "q4@example.org")}, "references"),
    ],
)
def test_nothing_is_injected_into_a_header(change: dict, field: str):
    with pytest.raises(ProfileRefused) as caught:
        exact_mime.build(reply(**change))
    assert caught.value.field == field


def test_a_text_that_was_not_normalised_makes_no_message():
    with refused("control_character", "body"):
        exact_mime.build(replace(reply(), text="a\r\nb"))


def test_there_is_no_header_beyond_those_that_mail_needs():
    head = exact_mime.build(reply()).partition(b"\r\n\r\n")[0]
    names = re.findall(rb"^([A-Za-z-]+):", head, re.MULTILINE)
    assert names == [
        *(b"From", b"To", b"Subject", b"Date", b"Message-ID", b"In-Reply-To", b"References"),
        *(b"MIME-Version", b"Content-Type", b"Content-Transfer-Encoding"),
    ]


TURNING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
texts = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"], exclude_characters=TURNING),
    max_size=300,
)
bodies = st.lists(texts, min_size=1, max_size=5).map("\n".join).filter(str.strip)


@given(bodies, texts.map(str.strip).filter(bool))
@settings(max_examples=200)
def test_what_is_read_again_is_what_was_written(text: str, subject: str):
    made = reply(text, subject=subject)
    raw = exact_mime.build(made)
    assert raw == exact_mime.build(made)
    assert raw.isascii()
    assert max(map(len, raw.split(b"\r\n"))) <= 998
    letter = mime_check.read(raw)
    assert (letter.text, letter.subject) == (text, subject)
    assert (letter.sender, letter.to) == (made.sender, made.to)
    assert letter.references == made.references
    assert mime_check.require_approved(raw, approved(raw)) == letter


def test_every_flipped_byte_is_found_before_the_contact():
    raw = exact_mime.build(reply("Yes.\n\nAda\n"))
    facts = approved(raw)
    for position in range(len(raw)):
        for flip in (0x01, 0x20, 0x80, 0xFF):
            other = raw[:position] + bytes([raw[position] ^ flip]) + raw[position + 1 :]
            with pytest.raises(ProfileRefused) as caught:
                mime_check.require_approved(other, facts)
            assert caught.value.field


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"sender": "eve@agents.example"}, "from"),
        ({"to": "eve@example.org"}, "to"),
        ({"subject": "Re: Other figures"}, "subject"),
        ({"message_id": "reply-2@agents.example"}, "message_id"),
        ({"references": ("q4@example.org",)}, "references"),
        ({"in_reply_to": "q5@example.org", "references": ("q5@example.org",)}, "in_reply_to"),
        ({"date": DATE.replace(hour=9)}, "date"),
        ({"text": "They are bad.\n"}, "body_sha256"),
    ],
)
def test_another_field_is_named_before_the_contact(change: dict, field: str):
    facts = approved(exact_mime.build(reply()))
    with refused("mime_not_exact", field):
        mime_check.require_approved(exact_mime.build(reply(**change)), facts)


@pytest.mark.parametrize("name", sorted(approved(exact_mime.build(reply()))))
def test_a_fact_that_is_missing_or_another_is_named(name: str):
    raw = exact_mime.build(reply())
    facts = approved(raw)
    for changed in ({**facts, name: "other"}, {k: v for k, v in facts.items() if k != name}):
        with refused("mime_not_exact", "mime" if name == "mime_sha256" else name):
            mime_check.require_approved(raw, changed)


def _with(old: bytes, new: bytes) -> bytes:
    raw = exact_mime.build(reply())
    assert old in raw
    return raw.replace(old, new, 1)


@pytest.mark.parametrize(
    "raw",
    [
        _with(b"To: bob@example.org\r\n", b"To: bob@example.org\r\nTo: eve@example.org\r\n"),
        _with(b"To: bob@example.org\r\n", b"To: bob@example.org\r\nBcc: eve@example.org\r\n"),
        _with(b"To: bob", b"X-Mark: 1\r\nTo: bob"),
        _with(b"To: bob@example.org\r\n", b""),
        _with(b"To: bob@example.org", b"To: Bob <bob@example.org>"),
        _with(b"To: bob@example.org", b"To: bob@example.org, eve@example.org"),
        _with(b"To: bob@example.org", b"To: Team: bob@example.org;"),
        _with(b"base64", b"8bit"),
        _with(b"text/plain", b"text/html"),
        _with(b"utf-8", b"utf-7"),
        _with(b"NCg==", b"NCg==\r\nNCg=="),
        _with(b"NCg==", b"NCh=="),
        _with(b"NCg==", b"NCg="),
        _with(b"VGhl", b"VG hl"),
        _with(b"\r\n\r\n", b"\r\n\r\n\r\n"),
        _with(b"\r\n\r\n", b"\r\n"),
        exact_mime.build(reply())[:-4],
        exact_mime.build(reply()).replace(b"\r\n", b"\n"),
    ],
)
def test_another_form_of_the_same_message_is_refused(raw: bytes):
    with pytest.raises(ProfileRefused):
        mime_check.read(raw)


def test_the_body_is_the_text_and_nothing_more():
    body = exact_mime.build(reply("x")).partition(b"\r\n\r\n")[2]
    assert b64decode(body) == b"x"


def test_text_that_is_written_from_right_to_left_stays_as_it_is():
    text = "\u05e9\u05dc\u05d5\u05dd\u200f, \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    assert mime_check.read(exact_mime.build(reply(text))).text == text

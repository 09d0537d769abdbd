"""Strict read-back: only the approved message, among the sent ones, in its thread, is a proof."""

from __future__ import annotations

import quopri
from collections.abc import Callable

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mail.exceptions import ProfileRefused
from mail.gateways.google.base import MessagePage, MessageReference
from mail.gmail import exact_mime, readback
from tests.mail.gmail.builders import SENT, copy, expected, reply
from tests.mail.gmail.refusals import refused

TEXT = "They are fine.\n\nBest, Ada – and Łukasz\n"
REPLY = reply(TEXT, subject="Re: Zahlen für Łódź")
RAW = exact_mime.build(REPLY)
HEAD, _, BODY = RAW.partition(b"\r\n\r\n")
TRACES = (
    b"Received: from x by y; Tue, 1 Dec 2026 08:00:01 +0000\r\n"
    b"Received: by z\r\n        with HTTP; Tue, 1 Dec 2026 08:00:01 +0000\r\n"
    b"Return-Path: <ada@agents.example>\r\n"
    b"DKIM-Signature: v=1; a=rsa-sha256;\r\n\tbh=abc\r\n"
    b"ARC-Seal: i=1\r\nARC-Message-Signature: i=1\r\nARC-Authentication-Results: i=1\r\n"
    b"Authentication-Results: mx.example; spf=pass\r\nReceived-SPF: pass\r\n"
    b"X-Google-Smtp-Source: 1\r\nX-Gm-Message-State: 2\r\nDelivered-To: ada@agents.example\r\n"
)


def verify(raw: bytes = RAW, **changes: object) -> readback.Proof:
    return readback.verify(copy(raw, **changes), expected(REPLY), asked=SENT)


def test_the_very_message_in_sent_is_a_proof():
    assert verify().id == SENT


def test_added_trace_fields_change_nothing():
    assert verify(TRACES + RAW).id == SENT
    assert verify(HEAD + b"\r\n" + TRACES.rstrip(b"\r\n") + b"\r\n\r\n" + BODY).id == SENT


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"labels": ("INBOX",)}, "not_in_sent"),
        ({"labels": ()}, "not_in_sent"),
        ({"labels": ("sent",)}, "not_in_sent"),
        ({"labels": ("SENT", "DRAFT")}, "not_in_sent"),
        ({"thread_id": "18c0ffee00000003"}, "thread_differs"),
        ({"thread_id": ""}, "thread_differs"),
        ({"id": "18c0ffee00000008"}, "message_differs"),
    ],
)
def test_it_lies_in_sent_in_its_thread_under_its_id(changes: dict, reason: str):
    with refused(reason):
        verify(RAW, **changes)


def _with(old: bytes, new: bytes) -> bytes:
    assert old in RAW
    return RAW.replace(old, new, 1)


LINES = {line.partition(b":")[0]: line for line in HEAD.replace(b"\r\n ", b"\0").split(b"\r\n")}


def _line(name: bytes) -> bytes:
    return LINES[name].replace(b"\0", b"\r\n ") + b"\r\n"


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (_with(b"<reply-1@", b"<CAxyz@"), "message_id_replaced"),
        (_with(b"From: ada@", b"From: eve@"), "from_differs"),
        (_with(b"From: ada@agents.example", b"From: Ada <ada@agents.example>"), "from_differs"),
        (_with(b"To: bob@", b"To: eve@"), "to_differs"),
        (_with(b"To: bob@example.org", b"To: bob@example.org, eve@example.org"), "to_differs"),
        (_with(b"In-Reply-To: <q4@", b"In-Reply-To: <q5@"), "in_reply_to_differs"),
        (_with(b" <q3@example.org>\r\n", b""), "references_differ"),
        (_with(b"Subject: =?utf-8?B?", b"Subject: x =?utf-8?B?"), "subject_differs"),
        (_with(b"MIME-Version: 1.0\r\n", b""), "header_missing"),
        (_with(b"MIME-Version: 1.0", b"MIME-Version: 2.0"), "unsupported_type"),
        (RAW.replace(_line(b"Subject"), b"Subject: Re: Zahlen\r\n"), "subject_differs"),
        (RAW.replace(_line(b"Subject"), b""), "header_missing"),
        (RAW.replace(_line(b"Message-ID"), b""), "header_missing"),
        (RAW.replace(_line(b"To"), b""), "header_missing"),
        (RAW.replace(_line(b"Date"), b""), "header_missing"),
    ],
)
def test_another_telling_field_is_no_proof(raw: bytes, reason: str):
    with refused(reason):
        verify(raw)


@pytest.mark.parametrize("name", sorted(LINES))
@pytest.mark.parametrize("where", ["first", "last"])
def test_a_telling_field_that_stands_twice_is_no_proof(name: bytes, where: str):
    line = _line(name)
    raw = line + RAW if where == "first" else HEAD + b"\r\n" + line + b"\r\n" + BODY
    with refused("header_duplicated", name.decode().lower().replace("-", "_")):
        verify(raw)


@pytest.mark.parametrize("name", [b"Cc", b"Bcc", b"bcc", b"Resent-To", b"Resent-Bcc", b"Reply-To"])
def test_a_further_recipient_is_no_proof(name: bytes):
    with refused("extra_recipient", name.decode().lower()):
        verify(name + b": eve@example.org\r\n" + RAW)


@pytest.mark.parametrize("name", [b"Sender", b"List-Id", b"Auto-Submitted", b"Importance", b"Foo"])
def test_a_field_that_nobody_approved_is_no_proof(name: bytes):
    with refused("unexpected_header", name.decode().lower()):
        verify(name + b": x\r\n" + RAW)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (_with(b"text/plain", b"multipart/mixed"), "extra_parts"),
        (_with(b'text/plain; charset="utf-8"', b'multipart/mixed; boundary="b"'), "extra_parts"),
        (_with(b'text/plain; charset="utf-8"', b"message/rfc822"), "extra_parts"),
        (_with(b"text/plain", b"text/html"), "unsupported_type"),
        (_with(b'; charset="utf-8"', b""), "unsupported_type"),
        (_with(b'charset="utf-8"', b'charset="utf-8"; format=flowed'), "unsupported_type"),
        (_with(b'"utf-8"', b'"utf-7"'), "unsupported_charset"),
        (_with(b'utf-8"', b'iso-8859-1"'), "unsupported_charset"),
        (_with(b"base64", b"x-uuencode"), "unsupported_encoding"),
        (_with(b"base64", b"binary"), "unsupported_encoding"),
        (_with(b"base64", b"7bit"), "body_differs"),
    ],
)
def test_what_is_not_read_here_is_no_proof(raw: bytes, reason: str):
    with refused(reason):
        verify(raw)


@pytest.mark.parametrize(
    "body",
    [
        BODY + b"\r\n",
        BODY.rstrip() + b"\n",
        BODY.replace(b"\r\n", b"\n"),
        b" " + BODY,
        BODY.replace(b"=", b"") if b"=" in BODY else BODY[:-3],
        b"!" + BODY[1:],
        b"",
    ],
)
def test_a_body_with_another_spelling_is_no_proof(body: bytes):
    with pytest.raises(ProfileRefused) as caught:
        verify(HEAD + b"\r\n\r\n" + body)
    assert caught.value.reason in ("body_malformed", "truncated", "body_differs")


def test_a_copy_that_ends_early_is_no_proof():
    with refused("truncated"):
        verify(HEAD)
    whole = exact_mime.build(REPLY).rstrip(b"\r\n")
    with refused("truncated"):
        verify(whole[: len(whole) - 8] + b"\r\n")


def test_a_copy_beyond_the_bound_is_no_proof():
    with refused("raw_too_large"):
        verify(b"X-Long: 1\r\n" * 7000 + RAW)


@pytest.mark.parametrize(
    "encode",
    [
        pytest.param(lambda text: (b"8bit", text), id="8bit"),
        pytest.param(
            lambda text: (b"quoted-printable", quopri.encodestring(text).replace(b"\n", b"\r\n")),
            id="quoted-printable",
        ),
    ],
)
def test_another_encoding_of_the_same_text_is_a_proof(encode: Callable):
    lines = TEXT.encode()
    encoding, body = encode(lines)
    body = body.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    assert verify(HEAD.replace(b"base64", encoding) + b"\r\n\r\n" + body).id == SENT


@pytest.mark.parametrize(
    "body", [b"They are f=69ne.", b"a=3d", b"a=\n", b"soft= \r\n", b"end \r\n", b"\x00", b"=4"]
)
def test_quoted_printable_has_one_spelling(body: bytes):
    with pytest.raises(ProfileRefused):
        verify(HEAD.replace(b"base64", b"quoted-printable") + b"\r\n\r\n" + body)


#: Where a flip may leave the meaning alone: the names' case, and fields that tell nothing.
_SILENT = (b"Date", b"MIME-Version", b"Content-Type", b"Content-Transfer-Encoding")


def _telling() -> list[int]:
    """Every byte of the body and of the telling fields' values, colons and line ends included."""
    found = list(range(len(HEAD) + 2, len(RAW)))
    position = 0
    for line in HEAD.replace(b"\r\n ", b"\0\0\0").split(b"\r\n"):
        name = line.partition(b":")[0]
        if name not in _SILENT:
            found += range(position + len(name), position + len(line) + 2)
        position += len(line) + 2
    return found


@pytest.mark.parametrize("examples", [300, pytest.param(1500, marks=pytest.mark.soak)])
def test_one_flipped_byte_is_never_a_proof(examples: int):
    settings(max_examples=examples)(
        given(st.sampled_from(_telling()), st.integers(1, 255))(_flip)
    )()


def _flip(position: int, flip: int) -> None:
    other = RAW[:position] + bytes([RAW[position] ^ flip]) + RAW[position + 1 :]
    with pytest.raises(ProfileRefused) as caught:
        verify(other)
    assert caught.value.reason


@given(st.sampled_from(range(len(RAW))), st.integers(1, 255))
def test_one_flipped_byte_anywhere_never_changes_what_is_proved(position: int, flip: int):
    """In a name or a silent field a flip may pass: then field and text are read as they were."""
    other = RAW[:position] + bytes([RAW[position] ^ flip]) + RAW[position + 1 :]
    try:
        verify(other)
    except ProfileRefused:
        return
    assert other[len(HEAD) :] == RAW[len(HEAD) :]
    assert position not in _telling()


@given(st.binary(max_size=300))
def test_bytes_put_in_front_are_a_trace_or_no_proof(junk: bytes):
    assume(junk)
    try:
        verify(junk + RAW)
    except ProfileRefused:
        return
    names = {one.partition(b":")[0].lower() for one in junk.split(b"\r\n") if one[:1] not in b" \t"}
    assert all(one.startswith((b"x-", b"arc-", b"rec", b"d", b"auth", b"ret")) for one in names)


@given(st.binary(max_size=300))
def test_any_bytes_are_no_proof(raw: bytes):
    with pytest.raises(ProfileRefused):
        verify(raw)


def page(*ids: str, next_page: str = "") -> MessagePage:
    return MessagePage(tuple(MessageReference(one, "t") for one in ids), next_page)


def test_one_page_of_up_to_five_candidates():
    assert readback.candidates(page()) == ()
    assert readback.candidates(page("1", "2", "3", "4", "5")) == ("1", "2", "3", "4", "5")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (page("1", next_page="more"), "more_pages"),
        (page(next_page="more"), "more_pages"),
        (page("1", "2", "3", "4", "5", "6"), "too_many_candidates"),
        (page("1", "1"), "answer_malformed"),
        (page("1", ""), "answer_malformed"),
    ],
)
def test_more_than_that_is_no_proof(answer: MessagePage, reason: str):
    with refused(reason):
        readback.candidates(answer)


def test_encoded_words_are_one_text_with_one_space_between_them_and_refused_with_two():
    """Readers leave out every space between two words: `a  b` would be shown as `ab`."""
    words = b"=?utf-8?B?YQ==?= =?utf-8?B?Yg==?="
    answer = reply(TEXT, subject="ab")
    plain = exact_mime.build(answer)

    def found(shown: bytes, subject: str) -> readback.Proof:
        raw = plain.replace(b"Subject: ab", b"Subject: " + shown)
        return readback.verify(copy(raw), expected(reply(TEXT, subject=subject)), asked=SENT)

    assert found(words, "ab").id == SENT
    with refused("header_malformed"):
        found(words.replace(b" ", b"  "), "a  b")

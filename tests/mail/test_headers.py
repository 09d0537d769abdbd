"""Header lines, folding, subjects, dates and ids."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mail import mime
from tests.mail.builders import plain


@pytest.mark.invariant(23)
@pytest.mark.fault("headers-05", "send-15")
@pytest.mark.parametrize(
    ("line", "subject"),
    [
        (b"Subject: a\r b", "a b"),
        (b"Subject: a\rBcc: e@x", "a Bcc: e@x"),
        (b"Subject: a\r\n b\r\n\tc", "a b c"),
        (b"Subject: =?utf-8?q?a=0D=0ABcc=3A_e=40x?=", "a Bcc: e@x"),
        (b"Subject: a\x00b", "a b"),
    ],
)
def test_a_subject_is_one_line_whatever_it_holds(line: bytes, subject: str) -> None:
    parsed = mime.parse(plain(line, "To: b@y"))
    assert parsed.subject == subject
    assert [name for name, _ in parsed.headers] == ["from", "subject", "to"]


SUBJECTS = [
    (b"=?utf-8?Q?caf=C3=A9?=", "café"),
    (b"=?utf-8?B?Y2Fmw6k=?= =?utf-8?B?IQ==?=", "café!"),
    (b"=?utf-8?q?a?= b =?utf-8?q?c?=", "a b c"),
    (b"=?utf-8?b?4pw=?= =?utf-8?b?kw==?=", "✓"),
    (b"=?iso-8859-1*de?q?=FC?=", "ü"),
    (b"=?x-unknown?q?caf=C3=A9?=", "café"),
    (b"=?utf-8?b?!!!?=", "=?utf-8?b?!!!?="),
    (b"=?utf-8?x?abc?=", "=?utf-8?x?abc?="),
    ("rohe Umlaute: äöü".encode(), "rohe Umlaute: äöü"),
    (b"caf\xe9", "café"),
    (b"=?utf-7?q?+2AA-?=", "\ufffd"),
    (b"=?unicode_escape?q?=5Cud800?=", "\\ud800"),
    (b"=?utf-8?q?two_words?=", "two words"),
    (b"", ""),
]


@pytest.mark.fault("charset-05")
@pytest.mark.parametrize(("value", "subject"), SUBJECTS)
def test_subjects_are_decoded_without_losing_text(value: bytes, subject: str) -> None:
    assert mime.parse(plain(b"Subject: " + value)).subject == subject


@pytest.mark.fault("headers-05")
def test_the_first_of_two_subjects_counts_and_it_is_flagged() -> None:
    parsed = mime.parse(plain("Subject: one", "Subject: two"))
    assert parsed.subject == "one"
    assert "header.duplicate" in parsed.defects


def test_text_without_an_empty_line_before_it_is_text() -> None:
    parsed = mime.parse(b"From: a@x.org\r\nSubject: s\r\nhello there\r\nmore\r\n")
    assert (parsed.subject, parsed.text) == ("s", "hello there\nmore\n")
    assert "header.missing-separator" in parsed.defects


def test_prose_is_a_message_without_headers() -> None:
    parsed = mime.parse(b"just some words\nand more\n")
    assert parsed.sender is None
    assert parsed.text == "just some words\nand more\n"


def test_an_mbox_line_and_a_byte_order_mark_are_passed_over() -> None:
    raw = b"\xef\xbb\xbfFrom a@x Mon Nov 30 09:00:00 2026\n" + plain("Subject: s")
    parsed = mime.parse(raw)
    assert parsed.sender is not None and parsed.subject == "s"
    assert {"message.byte-order-mark", "message.mbox-line"} <= set(parsed.defects)


DATES = [
    ("Mon, 30 Nov 2026 10:00:00 +0100", datetime(2026, 11, 30, 9, tzinfo=UTC)),
    ("30 Nov 2026 09:00 GMT", datetime(2026, 11, 30, 9, tzinfo=UTC)),
    ("Mon, 30 Nov 26 04:00:00 EST (comment)", datetime(2026, 11, 30, 9, tzinfo=UTC)),
    ("Mon, 30 Nov 2026 09:00:60 -0000", datetime(2026, 11, 30, 9, 0, 59, tzinfo=UTC)),
    ("(c) Mon, 30 Nov 2026 09:00:00 +0000", datetime(2026, 11, 30, 9, tzinfo=UTC)),
    ("Mon Nov 30 09:00:00 2026", datetime(2026, 11, 30, 9, tzinfo=UTC)),
    ("Mon, 30 Nov 2026 09:00:00 +2400", None),
    ("Mon, 30 Nov 2026 09:00:00 +0060", None),
    ("Mon, 31 Dec 9999 23:59:59 -1200", None),
    ("Mon, 32 Nov 2026 10:00:00 +0100", None),
    ("2026-11-30T09:00:00Z", None),
    ("yesterday", None),
    ("", None),
]


@pytest.mark.parametrize(("text", "moment"), DATES)
def test_dates_are_utc_or_nothing(text: str, moment: datetime | None) -> None:
    parsed = mime.parse(plain(f"Date: {text}"))
    assert parsed.date == moment
    assert ("header.bad-date" in parsed.defects) == (moment is None)


IDS = [
    ("<id@x>", "id@x"),
    ("<[x]>", "[x]"),
    ("id@x", "id@x"),
    ("<id@x> trailing", "id@x"),
    ("<>", None),
    ("nothing", None),
    ("<a b@x>", None),
    ("<" + "x" * 2000 + "@y>", None),
]


@pytest.mark.parametrize(("value", "expected"), IDS)
def test_message_ids_lose_their_brackets(value: str, expected: str | None) -> None:
    assert mime.parse(plain(f"Message-ID: {value}")).message_id == expected


@pytest.mark.fault("headers-20")
def test_an_in_reply_to_without_brackets_names_nothing() -> None:
    parsed = mime.parse(plain("In-Reply-To: 1234567", "References: <a@x> <b@x> <a@x> junk"))
    assert parsed.in_reply_to == ()
    assert parsed.references == ("a@x", "b@x")


def test_long_references_keep_the_oldest_and_the_newest() -> None:
    ids = " ".join(f"<{number}@x>" for number in range(500))
    kept = mime.parse(plain(f"References: {ids}")).references
    assert len(kept) == 100
    assert (kept[0], kept[-1]) == ("0@x", "499@x")


def test_an_encoded_word_that_holds_no_letter_of_base64_stays_as_it_stands() -> None:
    parsed = mime.parse(plain("Subject: =?utf-8?b?!!!?= and =?utf-8?b??= more"))
    assert parsed.subject == "=?utf-8?b?!!!?= and  more"
    assert "header.bad-encoded-word" in parsed.defects

"""Nothing in a message costs more than its size, and nothing raises (invariants 3 and 4)."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mail import mime
from mail.mime import limits
from mail.mime.defects import MEANINGS, QUARANTINE, Defect
from tests.databases import exit_of, forked
from tests.mail.builders import plain

FROM = b"From: alice@example.org\r\n"


def nested(depth: int) -> bytes:
    levels = b"".join(
        b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (one, one)
        for one in range(depth)
    )
    return FROM + levels + b"\r\ndeep\r\n"


def rfc822(depth: int) -> bytes:
    return FROM + b"Content-Type: message/rfc822\r\n\r\n" * depth + b"deep\r\n"


CONTINUATIONS = b"".join(b";\r\n filename*%d=a" % number for number in range(8192))


@pytest.mark.invariant(4)
@pytest.mark.fault("dos-02")
def test_fifty_levels_are_read_and_more_are_quarantined() -> None:
    assert mime.parse(nested(limits.MAX_DEPTH)).text == "deep\n"
    for depth in (limits.MAX_DEPTH + 1, 1_000, 20_000):
        parsed = mime.parse(nested(depth))
        assert parsed.quarantine == "mime.too-deep"
        assert parsed.sender is not None and parsed.parts == () and parsed.text == ""


@pytest.mark.fault("dos-02")
def test_a_thousand_forwarded_messages_are_one_attachment() -> None:
    parsed = mime.parse(rfc822(1_000))
    assert [one.type for one in parsed.parts] == ["message/rfc822"]


@pytest.mark.invariant(4)
def test_a_megabyte_of_empty_parts_is_quarantined() -> None:
    raw = FROM + b"Content-Type: multipart/mixed; boundary=b\r\n\r\n" + b"--b\r\n" * 200_000
    assert mime.parse(raw).quarantine == "mime.too-many-parts"


@pytest.mark.invariant(4)
@pytest.mark.fault("attachments-10")
def test_eight_thousand_continuations_are_cut_and_cheap() -> None:
    raw = FROM + b"Content-Disposition: attachment" + CONTINUATIONS + b"\r\n\r\nx"
    parsed = mime.parse(raw)
    assert {"header.too-long", "attachment.name-cut"} <= set(parsed.defects)
    assert parsed.parts[0].name == "a" * 255


@pytest.mark.fault("dos-04")
def test_fifty_thousand_leading_empty_lines_are_text_without_headers() -> None:
    parsed = mime.parse(b"\r\n" * 50_000 + FROM + b"\r\nhi")
    assert parsed.sender is None
    assert parsed.text.endswith("From: alice@example.org\n\nhi")


@pytest.mark.parametrize(
    "block",
    [b"X: y\r\n" * 2_000, b"".join(b"X%d: %s\r\n" % (n, b"y" * 60_000) for n in range(10))],
)
def test_headers_beyond_the_bounds_are_quarantined_and_name_nobody(block: bytes) -> None:
    parsed = mime.parse(FROM + block + b"\r\nhi")
    assert parsed.quarantine == "header.too-large"
    assert parsed.sender is None


def test_one_long_header_is_cut_and_the_message_lives() -> None:
    parsed = mime.parse(plain(b"To: " + b"a@b," * 1_000_000, "Subject: here"))
    assert len(parsed.to) == limits.MAX_ADDRESSES
    assert parsed.subject == "here"
    assert "header.too-long" in parsed.defects


COSTLY = [
    b"To: " + b"(" * 3_000,
    b"To: " + b'"\\' * 30_000,
    b"To: " + b"<" * 60_000,
    b"Subject: " + b"=?utf-8?q?a?= " * 4_000,
    b"Subject: " + b"=?" * 30_000,
    b"Content-Type: text/plain; " + b'x="' * 20_000,
    b"Content-Type: " + b"(" * 60_000,
    b"Content-Type: text/plain; charset*" + b"*" * 30_000,
    b"Authentication-Results: " + b"(" * 60_000,
    b"Date: " + b"(" * 60_000,
    b"Message-ID: " + b"<" * 60_000,
    b"References: " + b"<a@b>" * 12_000,
]


@pytest.mark.invariant(4)
@pytest.mark.timeout(20)
@pytest.mark.parametrize("header", COSTLY, ids=range(len(COSTLY)))
def test_no_header_costs_more_than_its_length(header: bytes) -> None:
    assert mime.parse(plain(header), authserv_id="x").text == "hello\n"


BODIES = [
    ("text/plain; charset=utf-8", b"\xff" * 2_000_000),
    ("text/plain; charset=gb2312", b"\xff" * 2_000_000),
    ("text/html", b"<div>" * 100_000 + b"x"),
    ("text/html", b"<!--" * 200_000),
    ("text/html", b"<" * 250_000),
    ("text/html", b"<table>" * 140 + b"<tr><td>x</td></tr>" * 12_000),
    ("text/html", b"<b><p>" * 20_000),
    ("text/html", b"<p style='padding-left:99999999em'>x"),
    ("text/html", b"<style>" + b"a{" * 100_000),
]


@pytest.mark.invariant(4)
@pytest.mark.timeout(20)
@pytest.mark.parametrize(("kind", "content"), BODIES, ids=range(len(BODIES)))
def test_no_body_costs_more_than_its_length(kind: str, content: bytes) -> None:
    parsed = mime.parse(plain(f"Content-Type: {kind}", text=content))
    assert parsed.quarantine is None
    assert len(parsed.text) <= 2 * len(content)


PIECES = st.sampled_from(
    [b"From: a@b", b"From: ", b"To: ", b"Subject: ", b"=?utf-8?q?", b"?=", b"\r\n", b"\n", b"\r",
     b"Content-Type: multipart/mixed; boundary=b", b"--b", b"--b--", b"Content-Type: text/html",
     b"Content-Type: multipart/signed; boundary=b; protocol=application/pgp-signature",
     b"Content-Transfer-Encoding: base64", b"Content-Type: application/pgp-signature", b"\x00",
     b"Content-Disposition: attachment; filename*0*=utf-8''%ff", b'"', b"(", b"<", b">", b";",
     b" ", b"\t", b"\xff\xfe", b"charset=utf-16", b"Date: 1 Jan 2026", b"\x04"]
)  # fmt: skip
TAGS = st.sampled_from(
    [b"<p style='display:none'>", b"</p>", b"<!--", b"-->", b"&#1;", b"&#xd800;", b"<img alt=x>",
     b"<table>", b"<td colspan=x>", b"<ol start=y>", b"<li>", b"<style>p{opacity:0}</style>"]
)  # fmt: skip
PAGE = st.just(b"From: a@b\nContent-Type: text/html\n\n")
SOUP = st.lists(PIECES | TAGS | st.binary(max_size=20), max_size=40).map(b"".join)


@pytest.mark.invariant(4, 6)
@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=600) | SOUP | st.tuples(PAGE, SOUP).map(b"".join))
def test_any_bytes_give_the_same_message_twice(raw: bytes) -> None:
    first = mime.parse(raw)
    assert first == mime.parse(raw)
    assert str(Defect.MESSAGE_UNFORESEEN) not in first.defects
    assert {Defect(name) for name in first.defects} <= set(MEANINGS)
    assert (first.quarantine in {str(one) for one in QUARANTINE}) == (first.quarantine is not None)
    for text in (first.subject, first.text, *(value for _, value in first.headers)):
        assert "\0" not in text
        text.encode("utf-8")


def test_every_defect_has_a_meaning() -> None:
    assert set(MEANINGS) == set(Defect)


@pytest.mark.invariant(3)
def test_a_failure_of_the_parser_itself_quarantines_the_message() -> None:
    class Hostile(bytes):
        def startswith(self, *_: object) -> bool:
            raise RuntimeError("unforeseen")

    parsed = mime.parse(Hostile(b"From: a@b\r\n\r\nx"))
    assert parsed.quarantine == "message.unforeseen"
    assert parsed.sender is None and parsed.size == 14


WORST = {
    "nesting": nested(1_000),
    "empty parts": FROM
    + b"Content-Type: multipart/mixed; boundary=b\r\n\r\n"
    + b"--b\r\n" * 200_000,
    "continuations": FROM + b"Content-Disposition: attachment" + CONTINUATIONS + b"\r\n\r\nx",
    "parentheses": b"From: " + b"(" * 3_000 + b"\r\nTo: " + b"(" * 3_000 + b"\r\n\r\nx",
}


def confined(work: Callable[[], object], *, seconds: int = 2) -> int:
    """The exit of a process that may use so much CPU, and 200 MB more than this one."""

    def inside() -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        room = pages * resource.getpagesize() + 200_000_000
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        work()

    return exit_of(forked(inside))


@pytest.mark.invariant(4)
@pytest.mark.parametrize("name", WORST)
def test_the_worst_messages_cost_two_seconds_and_200_megabytes_at_most(name: str) -> None:
    assert confined(lambda: mime.parse(WORST[name])) == 0


@pytest.mark.invariant(4)
def test_what_costs_more_is_seen() -> None:
    def burn() -> None:
        while os.getpid():
            pass

    assert confined(lambda: bytearray(300_000_000)) == 1
    assert confined(burn, seconds=1) == -signal.SIGKILL

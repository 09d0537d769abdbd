"""Transfer encodings and charsets: what is wrong falls back, and no text is lost."""

from __future__ import annotations

import base64

import pytest

from mail import mime
from mail.mime.charsets import decode, known
from tests.mail.builders import plain


def body(encoding: str, content: bytes, charset: str = "utf-8") -> mime.ParsedMessage:
    kind = f"Content-Type: text/plain; charset={charset}"
    return mime.parse(plain(kind, f"Content-Transfer-Encoding: {encoding}", text=content))


BASE64 = [
    (b"SGVsbG8=", "Hello", False),
    (b"SGVs\r\nbG8=\r\n", "Hello", False),
    (b"SGVsbG8", "Hello", True),
    (b"SGVs*bG8=", "Hello", True),
    (b"SGVsbG8=SGVsbG8=", "HelloHello", True),
    (b"This is plain text, surely.\r\n", "This is plain text, surely.\n", True),
    (b"SGVsbG8h\r\n____\r\nfooter, plainly\r\n", "Hello!____\nfooter, plainly\n", True),
    (b"", "", False),
]


@pytest.mark.parametrize(("content", "text", "damaged"), BASE64)
def test_base64_gives_all_that_can_be_read(content: bytes, text: str, damaged: bool) -> None:
    parsed = body("base64", content)
    assert parsed.text == text
    assert ("mime.bad-base64" in parsed.defects) == damaged


QUOTED = [
    (b"caf=C3=A9 =3D\r\n", "café =\n", False),
    (b"long=\r\n line\r\n", "long line\n", False),
    (b"long= \r\n line\r\n", "long line\n", False),
    (b"long=\r line\r\n", "long line\n", False),
    (b"lower =c3=a9", "lower é", False),
    (b"stray = sign =ZZ", "stray = sign =ZZ", True),
    (b"end=", "end", False),
]


@pytest.mark.parametrize(("content", "text", "damaged"), QUOTED)
def test_quoted_printable_keeps_what_it_cannot_read(
    content: bytes, text: str, damaged: bool
) -> None:
    parsed = body("quoted-printable", content)
    assert parsed.text == text
    assert ("mime.bad-quoted-printable" in parsed.defects) == damaged


@pytest.mark.parametrize("encoding", ["7bit", "8BIT", "binary", "", "8bit (really)", "base65"])
def test_other_encodings_leave_the_bytes_as_sent(encoding: str) -> None:
    parsed = body(encoding, b"caf\xc3\xa9 SGVsbG8=\r\n")
    assert parsed.text == "café SGVsbG8=\n"
    assert ("mime.unknown-encoding" in parsed.defects) == (encoding == "base65")


CHARSETS = [
    ("utf-8", "café".encode(), "café", True),
    ("utf-8", b"caf\xe9 \xc3\xa9", "café é", False),
    ("us-ascii", "café".encode(), "café", True),
    ("us-ascii", b"caf\xe9", "café", False),
    ("iso-8859-1", b"caf\xe9", "café", True),
    ("windows-1252", b"\x80 \x96", "€ –", True),
    ("x-unknown", "café".encode(), "café", False),
    ("x-unknown", b"caf\xe9", "café", False),
    ("gb2312", "汉字".encode("gb18030"), "汉字", True),
    ("shift_jis", "会議①".encode("cp932"), "会議①", True),
    ("iso-2022-jp", "会議".encode("iso-2022-jp"), "会議", True),
    ("koi8-r", "привет".encode("koi8-r"), "привет", True),
    ("utf-16", "café".encode("utf-16"), "café", True),
    ("idna", b"plain", "plain", False),
    ("unicode_escape", b"\\ud800", "\\ud800", False),
    ("zip", b"plain", "plain", False),
    ("", b"caf\xe9", "café", False),
    ("../../etc/passwd", b"plain", "plain", False),
    ("utf-8\x00", b"plain", "plain", False),
]


@pytest.mark.parametrize(("charset", "content", "text", "held"), CHARSETS)
def test_a_wrong_charset_loses_no_text(charset: str, content: bytes, text: str, held: bool) -> None:
    assert decode(content, charset) == (text, held)


def test_codecs_of_python_are_no_charsets() -> None:
    assert [known(name) for name in ("hex", "rot13", "punycode", "undefined", "aliases")] == [
        None
    ] * 5


def test_text_holds_no_nul_and_no_lone_surrogate() -> None:
    assert body("8bit", b"a\x00b").text == "a\ufffdb"
    assert "text.control-character" in body("8bit", b"a\x00b").defects
    body("8bit", b"+2AA-", charset="utf-7").text.encode()


def test_line_ends_inside_decoded_text_become_lf() -> None:
    assert body("base64", base64.b64encode(b"a\r\nb\rc\nd")).text == "a\nb\nc\nd"

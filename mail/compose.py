"""Composing mail that leaves: exact bytes, made once (DES-020, DES-022).

Every source field is checked before a header is built: CR, LF, NUL, other control characters, and
encoded words that decode to them are refused with the field's name, before anybody approves
anything (invariant 23). Bodies have CRLF line ends and are 7-bit; a signed part is serialised once,
signed as those bytes and sent as those bytes (RFC 3156).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.charset import QP, Charset
from email.header import Header
from email.utils import format_datetime

from guards.exceptions import InvalidInput
from guards.openpgp import Signature
from mail.mime import words
from mail.mime.addresses import parse_address
from mail.types import ComposedMail

_CONTROLS = re.compile(r"[\x00-\x1f\x7f\x80-\x9f\u2028\u2029\ud800-\udfff]")
_ID = re.compile(r"[^<>@\s]+@[^<>@\s]+")
_REFERENCE = re.compile(r"[!-;=?-~]+")
_HEADER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9\-]*")
_REPLY_PREFIX = re.compile(r"\s*re\s*(?:\[\d+\])?\s*:", re.IGNORECASE)
_PLAIN_PHRASE = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~ \-]*")
_MAX_SUBJECT = 900
_MAX_FIELD = 998
_MAX_REFERENCES = 20

_UTF8 = Charset("utf-8")
_UTF8.header_encoding = QP


@dataclass(frozen=True, slots=True)
class _Body:
    """A MIME entity: its own header lines, and its content with CRLF line ends."""

    headers: tuple[tuple[str, str], ...]
    content: bytes

    @property
    def serialised(self) -> bytes:
        return _header_block(self.headers) + b"\r\n" + self.content


def compose_reply(
    *,
    from_address: str,
    from_name: str,
    to: Sequence[str],
    original: tuple[str, str | None, Sequence[str]],
    text: str,
    automatic: bool,
    message_id: str,
    date: datetime,
    sign: Callable[[bytes], Signature] | None,
    repo: str = "",
    agent: str = "",
) -> ComposedMail:
    """A reply as the exact bytes that will leave.

    `original` is (subject, message id, references) of the message answered; `message_id` has no
    brackets; `sign` makes a detached signature, or is None for plain mail. `repo` becomes
    `X-Beadle-Repo`, `agent` (else the sender) `X-Beadle-Agent`, by which we know our own mail.
    InvalidInput names the field that cannot be a header; what `sign` raises passes through, and
    nothing is ever sent unsigned instead.
    """
    subject = reply_subject(original[0])
    headers = [
        ("From", _mailbox(from_name, _address(from_address, "from_address"))),
        ("To", _recipients(to)),
        ("Subject", _encoded(_field(subject, "subject"))),
        ("Date", format_datetime(date.astimezone(UTC))),
        ("Message-ID", f"<{_matching(_ID, message_id, 'message_id')}>"),
        *_threading(original[1], original[2]),
        *([("Auto-Submitted", "auto-replied")] if automatic else []),
        *_marks(repo, agent or from_address),
        ("MIME-Version", "1.0"),
    ]
    body = _text_body(text)
    if sign is not None:
        body = _signed(body, sign)
    raw = _header_block(tuple(headers) + body.headers) + b"\r\n" + body.content
    return ComposedMail(
        raw=raw,
        message_id=message_id,
        envelope_from=from_address,
        recipients=tuple(to),
        subject=subject,
        text=text.replace("\r\n", "\n").replace("\r", "\n"),
    )


def reply_subject(subject: str) -> str:
    """`Re:` once; what else stands in the subject stays as it is, repository tags included."""
    bare = subject.strip()[:_MAX_SUBJECT]
    return bare if _REPLY_PREFIX.match(bare) else f"Re: {bare}".strip()


def _field(text: str, name: str) -> str:
    """Text that may stand in a header; InvalidInput where it could end one, now or when decoded."""
    for reading in (text, words.raw_words(text)):
        bad = _CONTROLS.search(reading)
        if bad is not None:
            raise InvalidInput(
                f"{name} holds the character U+{ord(bad[0]):04X}, which cannot stand in a header;"
                " remove it",
                field=name,
                rule="header-injection",
            )
    if len(text) > _MAX_FIELD:
        raise InvalidInput(f"{name} is over {_MAX_FIELD} characters", field=name)
    return text


def _address(text: str, name: str) -> str:
    if parse_address(_field(text, name)) is None or not text.isascii():
        raise InvalidInput(f"{name}: {text!r} is not one plain address", field=name)
    return text


def _matching(pattern: re.Pattern[str], text: str, name: str) -> str:
    if not pattern.fullmatch(_field(text, name)) or not text.isascii():
        raise InvalidInput(f"{name}: {text!r} is not of the form of an id", field=name)
    return text


def _recipients(to: Sequence[str]) -> str:
    if not to:
        raise InvalidInput("a reply needs a recipient", field="to")
    return ", ".join(_address(one, "to") for one in to)


def _mailbox(name: str, address: str) -> str:
    if not _field(name, "from_name").strip():
        return address
    if _PLAIN_PHRASE.fullmatch(name) and "=?" not in name:
        return f"{name} <{address}>"
    if name.isascii() and "=?" not in name:
        escaped = name.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}" <{address}>'
    return f"{_encoded(name)} <{address}>"


def _encoded(text: str) -> str:
    """RFC 2047 where it is needed: beyond ASCII, or where text would read as an encoded word."""
    if text.isascii() and "=?" not in text:
        return text
    return Header(text, _UTF8, maxlinelen=70).encode(linesep="\r\n")


def _threading(message_id: str | None, references: Sequence[str]) -> list[tuple[str, str]]:
    """In-Reply-To and References by RFC Message-IDs; ids that are none are left out."""
    known = [one for one in references if _REFERENCE.fullmatch(one)]
    if message_id is None or not _REFERENCE.fullmatch(message_id):
        return []
    chain = list(dict.fromkeys([*known, message_id]))
    if len(chain) > _MAX_REFERENCES:
        chain = [chain[0], *chain[1 - _MAX_REFERENCES :]]
    return [
        ("In-Reply-To", f"<{message_id}>"),
        ("References", " ".join(f"<{one}>" for one in chain)),
    ]


def _marks(repo: str, agent: str) -> list[tuple[str, str]]:
    marks = (("X-Beadle-Repo", repo, "repo"), ("X-Beadle-Agent", agent, "agent"))
    return [(header, _encoded(_field(text, name))) for header, text, name in marks if text]


def _header_block(headers: Sequence[tuple[str, str]]) -> bytes:
    return b"".join(_folded(name, value) for name, value in headers)


def _folded(name: str, value: str) -> bytes:
    """One header with its line folded at spaces below 78 characters where it can be."""
    if not _HEADER_NAME.fullmatch(name):
        raise InvalidInput(f"{name!r} is no header name", field=name)
    if "\r\n" in value:  # encoded words, folded when they were made
        return f"{name}: {value}\r\n".encode("ascii")
    lines = [f"{name}:"]
    for word in value.split(" "):
        if (
            len(lines[-1]) + 1 + len(word) > 78
            and word
            and lines[-1].strip(" ")
            not in (
                "",
                f"{name}:",
            )
        ):
            lines.append("")
        lines[-1] += f" {word}"
    return ("\r\n".join(lines) + "\r\n").encode("ascii")


def _text_body(text: str) -> _Body:
    """The text as a 7-bit part: as it is where that is safe, quoted-printable otherwise."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd").split("\n")
    if lines[-1] == "":
        lines.pop()
    if all(_travels_as_it_is(line) for line in lines):
        content = "".join(f"{line}\r\n" for line in lines).encode("ascii")
        return _Body(_text_headers("us-ascii", "7bit"), content)
    content = b"".join(_quoted_printable(line) + b"\r\n" for line in lines)
    return _Body(_text_headers("utf-8", "quoted-printable"), content)


def _text_headers(charset: str, encoding: str) -> tuple[tuple[str, str], ...]:
    return (
        ("Content-Type", f'text/plain; charset="{charset}"'),
        ("Content-Transfer-Encoding", encoding),
    )


def _travels_as_it_is(line: str) -> bool:
    """RFC 3156: nothing that a relay could alter, or that a delimiter could be mistaken for."""
    return (
        line.isascii()
        and len(line) <= 76
        and (line.isprintable() or not _CONTROLS.search(line.replace("\t", " ")))
        and not line.endswith((" ", "\t"))
        and not line.startswith(("From ", "--", "."))
    )


def _quoted_printable(line: str) -> bytes:
    """One line by RFC 2045, with soft breaks; whatever might be altered on the way is encoded."""
    encoded = [_character(byte) for byte in line.encode("utf-8", "replace")]
    if encoded and line[-1] in " \t":
        encoded[-1] = f"={ord(line[-1]):02X}"
    if line.startswith(("From ", "-", ".")):
        encoded[0] = f"={ord(line[0]):02X}"
    pieces = [""]
    for position, one in enumerate(encoded):
        room = 76 if position == len(encoded) - 1 else 75
        if len(pieces[-1]) + len(one) > room:
            pieces.append("")
        pieces[-1] += one
    return "=\r\n".join(pieces).encode("ascii")


def _character(byte: int) -> str:
    plain = 32 <= byte <= 126 and byte != 61
    return chr(byte) if plain or byte == 9 else f"={byte:02X}"


def _signed(body: _Body, sign: Callable[[bytes], Signature]) -> _Body:
    """multipart/signed around exactly the bytes that were signed."""
    payload = body.serialised
    signature = sign(payload)
    armored = signature.armored.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    part = _Body(
        (
            ("Content-Type", 'application/pgp-signature; name="signature.asc"'),
            ("Content-Description", "OpenPGP digital signature"),
            ("Content-Disposition", 'attachment; filename="signature.asc"'),
        ),
        armored if armored.endswith(b"\r\n") else armored + b"\r\n",
    )
    boundary = _boundary(payload, part.serialised)
    dashes = b"--" + boundary.encode("ascii")
    first = dashes + b"\r\n" + payload + b"\r\n"
    second = dashes + b"\r\n" + part.serialised + b"\r\n"
    parameters = f'micalg={signature.micalg}; protocol="application/pgp-signature"'
    value = f'multipart/signed; {parameters}; boundary="{boundary}"'
    return _Body((("Content-Type", value),), first + second + dashes + b"--\r\n")


def _boundary(*contents: bytes) -> str:
    """A delimiter that occurs in none of the contents; the same for the same contents."""
    number = 0
    while True:
        seed = hashlib.sha256(b"%d" % number + b"".join(contents)).hexdigest()
        boundary = f"=_{seed[:40]}"
        if not any(boundary.encode("ascii") in content for content in contents):
            return boundary
        number += 1

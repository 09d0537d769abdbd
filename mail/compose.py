"""Composing mail that leaves: exact bytes, made once (DES-020, DES-022).

Every source field is checked before a header is built: CR, LF, NUL, other control characters, and
encoded words that decode to them are refused with the field's name, before anybody approves
anything (invariant 23). Bodies have CRLF line ends and are 7-bit; a signed part is serialised once,
signed as those bytes and sent as those bytes (RFC 3156).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.charset import QP, Charset
from email.header import Header
from email.utils import format_datetime

from guards.exceptions import InvalidInput
from guards.openpgp import Signature
from mail import concealing, parts
from mail.mime.addresses import parse_address
from mail.types import ComposedMail, Enclosure

_ID = re.compile(r"[^<>@\s]+@[^<>@\s]+")
_REFERENCE = re.compile(r"[!-;=?-~]+")
_REPLY_PREFIX = re.compile(r"\s*re\s*(?:\[\d+\])?\s*:", re.IGNORECASE)
_PLAIN_PHRASE = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~ \-]*")
_MAX_SUBJECT = 900
_MAX_REFERENCES = 20

_UTF8 = Charset("utf-8")
_UTF8.header_encoding = QP


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
    files: Sequence[Enclosure] = (),
    encrypt: Callable[[bytes], bytes] | None = None,
) -> ComposedMail:
    """A reply as the exact bytes that will leave.

    `original` is (subject, message id, references) of the message answered; `message_id` has no
    brackets; `sign` makes a detached signature over text and files, or is None for plain mail.
    `repo` becomes `X-Beadle-Repo`, `agent` (else the sender) `X-Beadle-Agent`, by which we know our
    own mail. `encrypt` makes an OpenPGP message of everything, headers included, and a Subject
    outside that says nothing. InvalidInput names the field that cannot be a header; what `sign` and
    `encrypt` raise passes through, and nothing is ever sent unsigned or in clear instead.
    """
    answers = _threading(original[1], original[2])
    if automatic:
        answers.append(("Auto-Submitted", "auto-replied"))
    return _composed(
        _Letter(from_address, from_name, tuple(to), reply_subject(original[0]), message_id, date),
        text=text,
        extra=answers,
        marks=(repo, agent or from_address),
        files=files,
        sign=sign,
        encrypt=encrypt,
    )


def compose_new(
    *,
    from_address: str,
    from_name: str,
    to: Sequence[str],
    subject: str,
    text: str,
    automatic: bool,
    message_id: str,
    date: datetime,
    sign: Callable[[bytes], Signature] | None,
    agent: str = "",
    files: Sequence[Enclosure] = (),
    encrypt: Callable[[bytes], bytes] | None = None,
) -> ComposedMail:
    """A message that answers none, as the exact bytes that will leave; see `compose_reply`."""
    extra = [("Auto-Submitted", "auto-generated")] if automatic else []
    return _composed(
        _Letter(from_address, from_name, tuple(to), subject.strip(), message_id, date),
        text=text,
        extra=extra,
        marks=("", agent or from_address),
        files=files,
        sign=sign,
        encrypt=encrypt,
    )


@dataclass(frozen=True, slots=True)
class _Letter:
    """What every message of ours says about itself."""

    from_address: str
    from_name: str
    to: tuple[str, ...]
    subject: str
    message_id: str
    date: datetime


def _composed(
    letter: _Letter,
    *,
    text: str,
    extra: Sequence[tuple[str, str]],
    marks: tuple[str, str],
    files: Sequence[Enclosure],
    sign: Callable[[bytes], Signature] | None,
    encrypt: Callable[[bytes], bytes] | None,
) -> ComposedMail:
    headers: tuple[tuple[str, str], ...] = (
        ("From", _mailbox(letter.from_name, plain_address(letter.from_address, "from_address"))),
        ("To", _recipients(letter.to)),
        ("Subject", _encoded(parts.field(letter.subject, "subject"))),
        ("Date", format_datetime(letter.date.astimezone(UTC))),
        ("Message-ID", f"<{_matching(_ID, letter.message_id, 'message_id')}>"),
        *extra,
        *_marks(*marks),
    )
    body = parts.text_body(text)
    if files:
        body = parts.mixed([body, *map(parts.file_part, files)])
    if encrypt is not None:
        headers, body = concealing.conceal(headers, body, encrypt=encrypt, sign=sign)
    elif sign is not None:
        body = parts.signed(body, sign)
    around = (*headers, ("MIME-Version", "1.0"), *body.headers)
    raw = parts.header_block(around) + b"\r\n" + body.content
    return ComposedMail(
        raw=raw,
        message_id=letter.message_id,
        envelope_from=letter.from_address,
        recipients=letter.to,
        subject=letter.subject,
        text=text.replace("\r\n", "\n").replace("\r", "\n"),
    )


def reply_subject(subject: str) -> str:
    """`Re:` once; what else stands in the subject stays as it is, repository tags included."""
    bare = subject.strip()[:_MAX_SUBJECT]
    return bare if _REPLY_PREFIX.match(bare) else f"Re: {bare}".strip()


def plain_address(text: str, name: str) -> str:
    """The text, if it is one plain ASCII address; InvalidInput with that field otherwise."""
    if parse_address(parts.field(text, name)) is None or not text.isascii():
        raise InvalidInput(f"{name}: {text!r} is not one plain address", field=name)
    return text


def _matching(pattern: re.Pattern[str], text: str, name: str) -> str:
    if not pattern.fullmatch(parts.field(text, name)) or not text.isascii():
        raise InvalidInput(f"{name}: {text!r} is not of the form of an id", field=name)
    return text


def _recipients(to: Sequence[str]) -> str:
    if not to:
        raise InvalidInput("a message needs a recipient", field="to")
    return ", ".join(plain_address(one, "to") for one in to)


def _mailbox(name: str, address: str) -> str:
    if not parts.field(name, "from_name").strip():
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
    return [(header, _encoded(parts.field(text, name))) for header, text, name in marks if text]

"""The exact bytes of one reply: one recipient, one plain text, made once and never again.

Deterministic: the same reply is the same bytes. There is no signature, no tag in the subject, no
header of ours beyond those that mail needs; what is not in a `Reply` is not in the message.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime

from mail.compose import reply_subject
from mail.exceptions import ProfileRefused
from mail.gmail import snapshot
from mail.gmail.identity import is_plain_address
from mail.gmail.reasons import Reason

#: A reply's text, in characters as people type it, and in UTF-8 bytes with CRLF line ends.
MAX_BODY_CHARS = 4_000
MAX_BODY_BYTES = 8 * 1024
#: The whole message, in bytes.
MAX_MIME_BYTES = 16 * 1024

_LINE_END = re.compile(r"\r\n|\r|\n")
#: Controls; those that turn the direction of text let a page show other words than are sent.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_ID = re.compile(r"[!-;=?A-~]+@[!-;=?A-~]+")
#: Bytes of text in one encoded word: as base64 they stay within the 75 characters of RFC 2047.
_WORD_BYTES = 45
_BASE64_LINE = 76


@dataclass(frozen=True, slots=True)
class Reply:
    """All that a reply says. Ids have no brackets, `text` is what `normalised` gave."""

    sender: str
    to: str
    subject: str
    date: datetime
    message_id: str
    in_reply_to: str
    references: tuple[str, ...]
    text: str


def normalised(text: str) -> str:
    """A body with one kind of line end (LF) and nothing else changed: no visible text is trimmed.

    ProfileRefused where it says nothing, is over a bound, or holds a control character.
    """
    body = _LINE_END.sub("\n", text)
    bad = _CONTROL.search(body)
    if bad is not None:
        raise ProfileRefused(Reason.CONTROL_CHARACTER, f"U+{ord(bad[0]):04X}", field="body")
    if not body.strip():
        raise ProfileRefused(Reason.BODY_EMPTY, field="body")
    if len(body) > MAX_BODY_CHARS:
        raise ProfileRefused(Reason.BODY_TOO_LONG, field="body")
    if len(_canonical(body)) > MAX_BODY_BYTES:
        raise ProfileRefused(Reason.BODY_TOO_LARGE, field="body")
    return body


def answer(
    source: snapshot.Snapshot, *, sender: str, message_id: str, date: datetime, text: str
) -> Reply:
    """The reply to a source: to its From alone, `Re:` once, its references and itself."""
    return Reply(
        sender=sender,
        to=source.sender,
        subject=reply_subject(source.subject),
        date=date.astimezone(UTC).replace(microsecond=0),
        message_id=message_id,
        in_reply_to=source.message_id,
        references=source.reply_references(),
        text=normalised(text),
    )


def build(reply: Reply) -> bytes:
    """The message. ProfileRefused names the field that cannot be in one."""
    _require_plain(reply)
    headers = (
        f"From: {reply.sender}",
        f"To: {reply.to}",
        f"Subject: {_subject(reply.subject)}",
        f"Date: {format_datetime(reply.date.astimezone(UTC))}",
        f"Message-ID: <{reply.message_id}>",
        f"In-Reply-To: <{reply.in_reply_to}>",
        "References: " + "\r\n ".join(f"<{one}>" for one in reply.references),
        "MIME-Version: 1.0",
        'Content-Type: text/plain; charset="utf-8"',
        "Content-Transfer-Encoding: base64",
    )
    head = "".join(f"{line}\r\n" for line in headers).encode("ascii")
    raw = head + b"\r\n" + _encoded(_canonical(reply.text))
    if len(raw) > MAX_MIME_BYTES:
        raise ProfileRefused(Reason.MIME_TOO_LARGE, field="mime")
    return raw


def _require_plain(reply: Reply) -> None:
    for name, address in (("from", reply.sender), ("to", reply.to)):
        if not is_plain_address(address):
            raise ProfileRefused(Reason.ADDRESS_NOT_PLAIN, field=name)
    ids = [("message_id", reply.message_id), ("in_reply_to", reply.in_reply_to)]
    for name, one in (*ids, *(("references", one) for one in reply.references)):
        if not _ID.fullmatch(one) or len(one) > snapshot.MAX_ID_BYTES:
            raise ProfileRefused(Reason.ID_MALFORMED, field=name)
    if not reply.references or reply.references[-1] != reply.in_reply_to:
        raise ProfileRefused(Reason.ID_MALFORMED, field="references")
    snapshot.require_bounded(reply.references)
    if normalised(reply.text) != reply.text:
        raise ProfileRefused(Reason.CONTROL_CHARACTER, "line ends", field="body")


def _subject(text: str) -> str:
    """As it is where that is plain ASCII; else encoded words, cut between characters."""
    if not text or text != text.strip() or _CONTROL.search(text) or "\n" in text or "\t" in text:
        raise ProfileRefused(Reason.CONTROL_CHARACTER, field="subject")
    if text.isascii() and "=?" not in text:
        return text
    return "\r\n ".join(f"=?utf-8?B?{b64encode(piece).decode()}?=" for piece in _pieces(text))


def _pieces(text: str) -> Iterator[bytes]:
    piece = b""
    for character in text:
        encoded = character.encode("utf-8")
        if len(piece) + len(encoded) > _WORD_BYTES:
            yield piece
            piece = b""
        piece += encoded
    yield piece


def _canonical(body: str) -> bytes:
    return body.replace("\n", "\r\n").encode("utf-8")


def _encoded(content: bytes) -> bytes:
    text = b64encode(content)
    lines = [text[start : start + _BASE64_LINE] for start in range(0, len(text), _BASE64_LINE)]
    return b"".join(line + b"\r\n" for line in lines)

"""Whether Gmail's copy is the message that was approved: a strict reader of its own.

It shares nothing with the code that wrote the message, nor with the parser that displays mail. A
provider may add trace fields; whatever else differs is no proof, and each way has its own word.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from mail.exceptions import ProfileRefused
from mail.gateways.google.base import SENT_CANDIDATES, MessagePage, RawMessage
from mail.gmail import fields
from mail.gmail.reasons import Reason

#: The copy with all that a provider may have added, in bytes.
MAX_COPY_BYTES = 64 * 1024

#: Fields that a provider may add on the way, beside `x-…` and `arc-…`: they say nothing about what
#: was said to whom.
_TRACES = frozenset(
    {
        *("received", "return-path", "delivered-to", "dkim-signature", "domainkey-signature"),
        *("authentication-results", "received-spf"),
    }
)
_TRACE_FAMILIES = ("x-", "arc-")
_RECIPIENTS = frozenset({"cc", "bcc", "resent-to", "resent-cc", "resent-bcc", "reply-to"})
_OURS = frozenset(
    {
        *("from", "to", "subject", "date", "message-id", "in-reply-to", "references"),
        *("mime-version", "content-type", "content-transfer-encoding"),
    }
)
_PLAIN = re.compile(r'text/plain; ?charset=("?)([A-Za-z0-9-]+)\1', re.IGNORECASE)
_LEADING_TYPE = re.compile(r"[a-z]+/[a-z0-9.+-]+", re.IGNORECASE)
_CHARSETS = {"utf-8": "utf-8", "us-ascii": "ascii"}
_BASE64_LINE = re.compile(rb"[A-Za-z0-9+/]{1,76}={0,2}")
_QUOTED = re.compile(rb"(?:[\t !-<>-~]|=[0-9A-F]{2}|=\r\n|\r\n)*")
_ESCAPE = re.compile(rb"=(\r\n|[0-9A-F]{2})")
_LOOSE = re.compile(rb"[ \t](?=\r\n|\Z)")


@dataclass(frozen=True, slots=True)
class Expected:
    """What has to be found: the approved message and where it belongs. Ids have no brackets."""

    thread_id: str
    message_id: str
    sender: str
    to: str
    subject: str
    in_reply_to: str
    references: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Proof:
    """That a copy is the approved message: Gmail's id of it and SHA-256 over its bytes."""

    id: str
    raw_sha256: str


def candidates(page: MessagePage) -> tuple[str, ...]:
    """The ids of one list page, five at most, each once; ProfileRefused where there is more."""
    if page.next_page:
        raise ProfileRefused(Reason.MORE_PAGES, field="list")
    ids = tuple(one.id for one in page.messages)
    if len(ids) > SENT_CANDIDATES:
        raise ProfileRefused(Reason.TOO_MANY_CANDIDATES, field="list")
    if len(set(ids)) != len(ids) or not all(ids):
        raise ProfileRefused(Reason.ANSWER_MALFORMED, field="list")
    return ids


def verify(copy: RawMessage, expected: Expected, *, asked: str) -> Proof:
    """The proof that this copy is the expected message; ProfileRefused with the reason it is not.

    `asked` is Gmail's id of the message that was asked for.
    """
    facts = copy.facts
    if facts.id != asked:
        raise ProfileRefused(Reason.MESSAGE_DIFFERS, field="id")
    if facts.thread_id != expected.thread_id:
        raise ProfileRefused(Reason.THREAD_DIFFERS, field="thread_id")
    if "SENT" not in facts.labels or "DRAFT" in facts.labels:
        raise ProfileRefused(Reason.NOT_IN_SENT, field="labels")
    if len(copy.raw) > MAX_COPY_BYTES:
        raise ProfileRefused(Reason.RAW_TOO_LARGE, field="raw")
    head, body = fields.split(copy.raw)
    _require_known(head)
    _require_same(head, expected)
    _require_text(_decoded(head, body), expected.text)
    return Proof(asked, sha256(copy.raw).hexdigest())


def _require_known(head: fields.Fields) -> None:
    """Our fields once each, trace fields, and nothing else."""
    for name in sorted(head.names()):
        if name in _RECIPIENTS:
            raise ProfileRefused(Reason.EXTRA_RECIPIENT, field=name)
        if name in _OURS:
            head.once(name)
        elif name not in _TRACES and not name.startswith(_TRACE_FAMILIES):
            raise ProfileRefused(Reason.UNEXPECTED_HEADER, field=name)


def _require_same(head: fields.Fields, expected: Expected) -> None:
    """Message-ID first: a provider that replaced it has a word of its own.

    The Date has to stand there, but is the provider's to set.
    """
    head.needed("date")
    same: Sequence[tuple[str, str, Reason]] = (
        ("message-id", f"<{expected.message_id}>", Reason.MESSAGE_ID_REPLACED),
        ("from", expected.sender, Reason.FROM_DIFFERS),
        ("to", expected.to, Reason.TO_DIFFERS),
        ("in-reply-to", f"<{expected.in_reply_to}>", Reason.IN_REPLY_TO_DIFFERS),
    )
    for name, value, reason in same:
        if head.needed(name) != value:
            raise ProfileRefused(reason, field=name.replace("-", "_"))
    if fields.decoded(head.needed("subject"), "subject") != expected.subject:
        raise ProfileRefused(Reason.SUBJECT_DIFFERS, field="subject")
    references = [one for one in head.needed("references").split(" ") if one]
    if references != [f"<{one}>" for one in expected.references]:
        raise ProfileRefused(Reason.REFERENCES_DIFFER, field="references")


def _decoded(head: fields.Fields, body: bytes) -> str:
    if head.needed("mime-version") != "1.0":  # without it, nothing need be decoded
        raise ProfileRefused(Reason.UNSUPPORTED_TYPE, field="mime_version")
    charset = _charset(head.needed("content-type"))
    encoding = (head.once("content-transfer-encoding") or "7bit").lower()
    if encoding == "base64":
        content = _base64(body)
    elif encoding == "quoted-printable":
        content = _quoted_printable(body)
    elif encoding in ("7bit", "8bit"):
        content = body
    else:
        raise ProfileRefused(Reason.UNSUPPORTED_ENCODING, field="content_transfer_encoding")
    try:
        return content.decode(charset)
    except UnicodeDecodeError as error:
        raise ProfileRefused(Reason.BODY_MALFORMED, "no such text", field="body") from error


def _charset(value: str) -> str:
    match = _PLAIN.fullmatch(value)
    if match is None:
        leading = _LEADING_TYPE.match(value)
        kind = leading[0].lower() if leading else ""
        multiple = kind.startswith(("multipart/", "message/"))
        reason = Reason.EXTRA_PARTS if multiple else Reason.UNSUPPORTED_TYPE
        raise ProfileRefused(reason, field="content_type")
    charset = _CHARSETS.get(match[2].lower())
    if charset is None:
        raise ProfileRefused(Reason.UNSUPPORTED_CHARSET, field="content_type")
    return charset


def _base64(body: bytes) -> bytes:
    """Lines of the alphabet and one end; only the one spelling of these bytes counts."""
    lines = body.split(b"\r\n")
    if lines and not lines[-1]:
        lines.pop()
    if not lines or not all(_BASE64_LINE.fullmatch(line) for line in lines):
        raise ProfileRefused(Reason.BODY_MALFORMED, "no base64", field="body")
    text = b"".join(lines)
    if len(text) % 4:
        raise ProfileRefused(Reason.TRUNCATED, field="body")
    try:
        content = b64decode(text, validate=True)
    except ValueError as error:
        raise ProfileRefused(Reason.BODY_MALFORMED, "no base64", field="body") from error
    if b64encode(content) != text:
        raise ProfileRefused(Reason.BODY_MALFORMED, "no canonical base64", field="body")
    return content


def _quoted_printable(body: bytes) -> bytes:
    if not _QUOTED.fullmatch(body) or _LOOSE.search(body):
        raise ProfileRefused(Reason.BODY_MALFORMED, "no quoted-printable", field="body")
    return _ESCAPE.sub(lambda match: _byte(match[1]), body)


def _byte(escape: bytes) -> bytes:
    return b"" if escape == b"\r\n" else bytes([int(escape, 16)])


def _require_text(found: str, approved: str) -> None:
    """The canonical text: lines end with CRLF in mail and with LF in what was approved."""
    lines = found.split("\r\n")
    if any("\r" in line or "\n" in line for line in lines):
        raise ProfileRefused(Reason.BODY_MALFORMED, "line ends", field="body")
    text = "\n".join(lines)
    if text != approved:
        cut = len(text) < len(approved) and approved.startswith(text)
        raise ProfileRefused(Reason.TRUNCATED if cut else Reason.BODY_DIFFERS, field="body")

"""Reads the bytes of a reply again, immediately before they leave, without the code that made them.

One spelling counts: these fields in this order, this encoding, these line ends. What the bytes say
is compared, field by field, with what was approved.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from mail.exceptions import ProfileRefused
from mail.gmail import fields
from mail.gmail.reasons import Reason

MAX_BYTES = 16 * 1024
MAX_BODY_BYTES = 8 * 1024

_ORDER = (
    *("from", "to", "subject", "date", "message-id", "in-reply-to", "references"),
    *("mime-version", "content-type", "content-transfer-encoding"),
)
_FIXED = {
    "mime-version": "1.0",
    "content-type": 'text/plain; charset="utf-8"',
    "content-transfer-encoding": "base64",
}
_FULL_LINE, _LAST_LINE = rb"[A-Za-z0-9+/]{76}\r\n", rb"[A-Za-z0-9+/]{2,76}={0,2}\r\n"
_BODY = re.compile(rb"(?:" + _FULL_LINE + rb")*" + _LAST_LINE)
_ID = re.compile(r"<([^<>\s@]+@[^<>\s@]+)>")


@dataclass(frozen=True, slots=True)
class Letter:
    """What a message says, as it was read from its bytes. Ids have no brackets."""

    sender: str
    to: str
    subject: str
    date: str
    message_id: str
    in_reply_to: str
    references: tuple[str, ...]
    text: str

    def facts(self) -> dict[str, object]:
        """What an approval binds of it, as JSON, in the order in which a difference is named."""
        return {
            "from": self.sender,
            "to": self.to,
            "subject": self.subject,
            "message_id": self.message_id,
            "in_reply_to": self.in_reply_to,
            "references": list(self.references),
            "body_sha256": sha256(self.text.encode("utf-8")).hexdigest(),
            "date": self.date,
        }


def read(raw: bytes) -> Letter:
    """What exactly these bytes say; ProfileRefused unless they are in the one form that counts."""
    if len(raw) > MAX_BYTES:
        raise ProfileRefused(Reason.MIME_TOO_LARGE, field="mime")
    head, body = fields.split(raw)
    if tuple(name for name, _ in head.entries) != _ORDER:
        raise ProfileRefused(Reason.MIME_NOT_EXACT, "other fields", field="header")
    for name, value in _FIXED.items():
        if head.needed(name) != value:
            raise ProfileRefused(Reason.MIME_NOT_EXACT, field=name.replace("-", "_"))
    return Letter(
        sender=_address(head, "from"),
        to=_address(head, "to"),
        subject=fields.decoded(head.needed("subject"), "subject"),
        date=head.needed("date"),
        message_id=_id(head.needed("message-id"), "message_id"),
        in_reply_to=_id(head.needed("in-reply-to"), "in_reply_to"),
        references=tuple(_id(one, "references") for one in head.needed("references").split(" ")),
        text=_text(body),
    )


def require_approved(raw: bytes, facts: Mapping[str, object]) -> Letter:
    """What the bytes say, if that is what was approved; ProfileRefused names what is not.

    `facts` are those that the approval's digest binds; a field that is missing there differs.
    """
    letter = read(raw)
    missing = object()
    for name, value in letter.facts().items():
        if facts.get(name, missing) != value:
            raise ProfileRefused(Reason.MIME_NOT_EXACT, field=name)
    if facts.get("mime_sha256") != sha256(raw).hexdigest():
        raise ProfileRefused(Reason.MIME_NOT_EXACT, field="mime")
    return letter


def _address(head: fields.Fields, name: str) -> str:
    """One bare address: no name, no comment, no list."""
    value = head.needed(name)
    local, at, domain = value.partition("@")
    if not (local and at and domain) or re.search(r"[\s<>()\[\],;:\\\"@]", local + domain):
        raise ProfileRefused(Reason.ADDRESS_NOT_PLAIN, field=name)
    return value


def _id(value: str, name: str) -> str:
    match = _ID.fullmatch(value)
    if match is None:
        raise ProfileRefused(Reason.ID_MALFORMED, field=name)
    return match[1]


def _text(body: bytes) -> str:
    if not _BODY.fullmatch(body):
        raise ProfileRefused(Reason.MIME_NOT_EXACT, "no canonical base64", field="body")
    content = fields.strict_base64(body.replace(b"\r\n", b""))
    if content is None or len(content) > MAX_BODY_BYTES:
        raise ProfileRefused(Reason.MIME_NOT_EXACT, "no canonical base64", field="body")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ProfileRefused(Reason.MIME_NOT_EXACT, "no UTF-8", field="body") from error
    lines = text.split("\r\n")
    if any("\r" in line or "\n" in line for line in lines):
        raise ProfileRefused(Reason.MIME_NOT_EXACT, "line ends", field="body")
    return "\n".join(lines)

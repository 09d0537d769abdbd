"""What is answered, strictly as Gmail has it now: the facts that a reply is approved with.

Source facts come from two fresh looks, at the source's exact bytes and at its whole thread; never
from a submitted recipient, a stored row or a model. What does not fit is refused; nothing is cut or
guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256

from mail.exceptions import ProfileRefused
from mail.gateways.google.base import SOURCE_BYTES, MessageFacts, RawMessage, ThreadAnswer
from mail.gmail import fields, identity
from mail.gmail.reasons import Reason
from mail.mime import addresses, words
from mail.mime.defects import Defects

#: A thread's messages.
MAX_MESSAGES = 10
#: A subject, in UTF-8 bytes; what a reply refers to, in ids and in bytes.
MAX_SUBJECT_BYTES = 200
MAX_REFERENCES = 20
MAX_REFERENCES_BYTES = 2 * 1024
#: One Message-ID with its brackets, in bytes: it has to fit on one header line.
MAX_ID_BYTES = 512

#: The headers of the source that decide about a reply. Each stands at most once.
AUTHORITY = ("from", "reply-to", "subject", "message-id", "in-reply-to", "references", "date")

_PROVIDER_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MESSAGE_ID = re.compile(r"<([!-;=?A-~]+@[!-;=?A-~]+)>")
_BLANKS = re.compile(r"[ \t]+")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The source of a reply and its thread, as of one look.

    Ids are Gmail's own, `message_id` and `references` are RFC 5322 ids without brackets. `reply_to`
    is what the sender wrote there: untrusted, shown, never followed. `source` is SHA-256 over the
    source's bytes, `messages` what the thread holds, `revision` the thread's history id.
    """

    thread_id: str
    source_id: str
    message_id: str
    sender: str
    sender_name: str
    reply_to: str
    subject: str
    references: tuple[str, ...]
    date: str
    source: str
    messages: tuple[str, ...]
    revision: str

    def facts(self) -> dict[str, object]:
        """What must not drift, as JSON, in the order in which a drift is named."""
        named = asdict(self)
        return {name: list(v) if isinstance(v, tuple) else v for name, v in named.items()}

    @property
    def digest(self) -> str:
        """SHA-256, hex, over everything that must not drift."""
        return sha256(json.dumps(self.facts(), sort_keys=True).encode()).hexdigest()

    def reply_references(self) -> tuple[str, ...]:
        """The references of the reply: those of its source, then the source itself, each once."""
        return (*(one for one in self.references if one != self.message_id), self.message_id)


def drifted(before: Mapping[str, object], now: Snapshot) -> str | None:
    """The first field of a snapshot that is no longer what it was, or None.

    `before` is what `facts` gave. A field that is missing there has drifted.
    """
    missing = object()
    return next((name for name, v in now.facts().items() if before.get(name, missing) != v), None)


def read(thread: ThreadAnswer, source: RawMessage) -> Snapshot:
    """The snapshot of a source message and of the thread that it says it is in.

    ProfileRefused, with the field, for whatever is too much, missing, doubled or ambiguous.
    """
    _require_whole(thread, source.facts)
    if len(source.raw) > SOURCE_BYTES:
        raise ProfileRefused(Reason.THREAD_TOO_LARGE, field="source")
    head, _ = fields.split(source.raw)
    values = {name: head.once(name) for name in AUTHORITY}
    sender, sender_name = _sender(head.needed("from"))
    snapshot = Snapshot(
        thread_id=thread.id,
        source_id=source.facts.id,
        message_id=_one_id(head.needed("message-id"), "message_id"),
        sender=sender,
        sender_name=sender_name,
        reply_to=_shown(values["reply-to"] or "", "reply_to"),
        subject=_subject(values["subject"] or ""),
        references=_references(values["references"] or ""),
        date=_shown(values["date"] or "", "date"),
        source=sha256(source.raw).hexdigest(),
        messages=tuple(one.id for one in thread.messages),
        revision=str(thread.history_id),
    )
    require_bounded(snapshot.reply_references())
    return snapshot


def require_bounded(references: Sequence[str]) -> None:
    """ProfileRefused where a reply would refer to more than 20 ids or 2 KiB: none is left out."""
    if len(references) > MAX_REFERENCES:
        raise ProfileRefused(Reason.REFERENCES_TOO_MANY, field="references")
    if len(" ".join(f"<{one}>" for one in references)) > MAX_REFERENCES_BYTES:
        raise ProfileRefused(Reason.REFERENCES_TOO_LONG, field="references")


def _require_whole(thread: ThreadAnswer, source: MessageFacts) -> None:
    """One thread, all of it, each message once, the source among them."""
    ids = [one.id for one in thread.messages]
    for one in (thread.id, *ids):
        if not _PROVIDER_ID.fullmatch(one):
            raise ProfileRefused(Reason.THREAD_MALFORMED, "no usable id", field="thread")
    if len(ids) > MAX_MESSAGES:
        raise ProfileRefused(Reason.THREAD_TOO_LONG, field="thread")
    if len(set(ids)) != len(ids):
        raise ProfileRefused(Reason.THREAD_MALFORMED, "a message stands twice", field="thread")
    if any(one.thread_id != thread.id for one in thread.messages):
        raise ProfileRefused(Reason.THREAD_MALFORMED, "of another thread", field="thread")
    if source.thread_id != thread.id or source.id not in ids:
        raise ProfileRefused(Reason.SOURCE_NOT_FOUND, field="source")


def _sender(value: str) -> tuple[str, str]:
    """The one plain address of From, and the name that stands beside it."""
    found = addresses.parse_header((value.encode("utf-8"),), set())
    if found.damaged or found.groups or len(found.addresses) != 1:
        raise ProfileRefused(Reason.FROM_NOT_ONE_ADDRESS, field="from")
    only = found.addresses[0]
    if not identity.is_plain_address(only.address):
        raise ProfileRefused(Reason.ADDRESS_NOT_PLAIN, field="from")
    return only.address, only.name


def _subject(value: str) -> str:
    text = _shown(value, "subject")
    if len(text.encode("utf-8")) > MAX_SUBJECT_BYTES:
        raise ProfileRefused(Reason.SUBJECT_TOO_LONG, field="subject")
    return text


def _shown(value: str, name: str) -> str:
    """A header as people read it; refused where decoding would have to guess or to clean."""
    line = _BLANKS.sub(" ", value) if "\t" in value else value
    if "=?" not in line:
        return line
    defects: Defects = set()
    text = words.decode_words(line, defects)
    if defects or text != words.raw_words(line).strip():
        raise ProfileRefused(Reason.HEADER_UNREADABLE, field=name)
    return text


def _one_id(value: str, name: str) -> str:
    match = _MESSAGE_ID.fullmatch(value)
    if match is None or len(value) > MAX_ID_BYTES:
        raise ProfileRefused(Reason.ID_MALFORMED, field=name)
    return match[1]


def _references(value: str) -> tuple[str, ...]:
    found = [_one_id(one, "references") for one in _BLANKS.split(value) if one]
    return tuple(dict.fromkeys(found))

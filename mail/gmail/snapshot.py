"""What is answered, strictly as Gmail has it now: the facts that a reply is approved with.

Source facts come from one fresh look at the whole thread with the headers of its messages; never
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
from mail.gateways.google.base import HeaderMessage, MessagePage, MessageReference, ThreadHeaders
from mail.gmail import identity
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
_MAX_HEADER_CHARS = 8 * 1024

_PROVIDER_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MESSAGE_ID = re.compile(r"<([!-;=?A-~]+@[!-;=?A-~]+)>")
_BLANKS = re.compile(r"[ \t]+")
#: A fold that every reader undoes alike: a line end, then blanks, then text.
_FOLD = re.compile(r"\r\n[ \t]+(?=[^ \t\r\n])")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The source of a reply and its thread, as of one look.

    Ids are Gmail's own, `message_id` and `references` are RFC 5322 ids without brackets. `reply_to`
    is what the sender wrote there: untrusted, shown, never followed. `source` is SHA-256 over all
    that Gmail says about the source, `messages` what the thread holds, `revision` its history id.
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


def located(page: MessagePage) -> MessageReference:
    """The one message that the mailbox has under a Message-ID; ProfileRefused for none or more."""
    if not page.messages:
        raise ProfileRefused(Reason.SOURCE_NOT_FOUND, field="source")
    if len(page.messages) > 1 or page.next_page:
        raise ProfileRefused(Reason.SOURCE_AMBIGUOUS, field="source")
    return page.messages[0]


def read(thread: ThreadHeaders, source_id: str) -> Snapshot:
    """The snapshot of a source message and of the thread that it is in.

    ProfileRefused, with the field, for whatever is too much, missing, doubled or ambiguous.
    """
    source = _member(thread, source_id)
    values = _authority(source)
    sender, sender_name = _sender(_needed(values, "from"))
    snapshot = Snapshot(
        thread_id=thread.id,
        source_id=source_id,
        message_id=_one_id(_needed(values, "message-id"), "message_id"),
        sender=sender,
        sender_name=sender_name,
        reply_to=_shown(values.get("reply-to", ""), "reply_to"),
        subject=_subject(values.get("subject", "")),
        references=_references(values.get("references", "")),
        date=_shown(values.get("date", ""), "date"),
        source=_digest(source),
        messages=tuple(one.facts.id for one in thread.messages),
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


def _member(thread: ThreadHeaders, source_id: str) -> HeaderMessage:
    """The source in its whole thread, each message of it once."""
    found = {one.facts.id: one for one in thread.messages}
    for one in (thread.id, *found):
        if not _PROVIDER_ID.fullmatch(one):
            raise ProfileRefused(Reason.THREAD_MALFORMED, "no usable id", field="thread")
    if len(thread.messages) > MAX_MESSAGES:
        raise ProfileRefused(Reason.THREAD_TOO_LONG, field="thread")
    if len(found) != len(thread.messages):
        raise ProfileRefused(Reason.THREAD_MALFORMED, "a message stands twice", field="thread")
    if any(one.facts.thread_id != thread.id for one in thread.messages):
        raise ProfileRefused(Reason.THREAD_MALFORMED, "of another thread", field="thread")
    if source_id not in found:
        raise ProfileRefused(Reason.SOURCE_NOT_FOUND, field="source")
    return found[source_id]


def _authority(source: HeaderMessage) -> dict[str, str]:
    """The headers that decide, each once and on one line."""
    found: dict[str, str] = {}
    for name, value in source.headers:
        known = name.strip().lower()
        if known not in AUTHORITY:
            continue
        if known in found:
            raise ProfileRefused(Reason.HEADER_DUPLICATED, field=_field(known))
        if name != name.strip():
            raise ProfileRefused(Reason.HEADER_MALFORMED, field=_field(known))
        found[known] = _one_line(value, _field(known))
    return found


def _needed(values: Mapping[str, str], name: str) -> str:
    if name not in values:
        raise ProfileRefused(Reason.HEADER_MISSING, field=_field(name))
    return values[name]


def _one_line(value: str, field: str) -> str:
    """The value without its folds; refused where two readers would not undo them alike."""
    if len(value) > _MAX_HEADER_CHARS:
        raise ProfileRefused(Reason.HEADER_MALFORMED, "too long", field=field)
    line = _FOLD.sub(" ", value)
    if "\r" in line or "\n" in line:
        raise ProfileRefused(Reason.AMBIGUOUS_FOLDING, field=field)
    if _CONTROL.search(line.replace("\t", " ")):
        raise ProfileRefused(Reason.CONTROL_CHARACTER, field=field)
    return _BLANKS.sub(" ", line).strip(" ") if "\t" in line else line.strip(" ")


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
    if "=?" not in value:
        return value
    defects: Defects = set()
    text = words.decode_words(value, defects)
    if defects or text != words.raw_words(value).strip():
        raise ProfileRefused(Reason.HEADER_UNREADABLE, field=name)
    return text


def _one_id(value: str, name: str) -> str:
    match = _MESSAGE_ID.fullmatch(value)
    if match is None or len(value) > MAX_ID_BYTES:
        raise ProfileRefused(Reason.ID_MALFORMED, field=name)
    return match[1]


def _references(value: str) -> tuple[str, ...]:
    found = [_one_id(one, "references") for one in value.split(" ") if one]
    return tuple(dict.fromkeys(found))


def _digest(source: HeaderMessage) -> str:
    """Over everything but the labels and what counts their changes: those are the revision's."""
    facts = source.facts
    known = [facts.id, facts.thread_id, facts.internal_date, source.size, source.headers]
    return sha256(json.dumps(known).encode()).hexdigest()


def _field(header: str) -> str:
    return header.replace("-", "_")

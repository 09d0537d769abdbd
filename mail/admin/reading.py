"""What the raw bytes of a message hold for a reader: new text apart, structure, source."""

from __future__ import annotations

from dataclasses import dataclass, field

from guards.exceptions import CountersignError
from mail import selectors
from mail.models import Message
from mail.quotes import split_reply
from mail.types import MimeNode

#: How much of the raw source a page shows; the whole is a download.
RAW_EXCERPT = 20_000


@dataclass(frozen=True, slots=True)
class Reading:
    """A message as its page shows it. `problem` says why the raw bytes could not be read."""

    new_text: str = ""
    quoted: str = ""
    structure: MimeNode | None = None
    headers: tuple[tuple[str, str], ...] = field(default_factory=tuple)
    raw_excerpt: str = ""
    problem: str = ""


def read(message: Message) -> Reading:
    """Parse the stored bytes again; the row's own text stands in where they are gone."""
    new, quoted = split_reply(message.text)
    try:
        raw, parsed = selectors.raw(message), selectors.parsed(message)
    except (CountersignError, OSError) as problem:
        return Reading(new, quoted, problem=f"The stored bytes cannot be read: {problem}.")
    excerpt = raw[:RAW_EXCERPT].decode("utf-8", "replace")
    return Reading(new, quoted, parsed.structure, parsed.headers, excerpt)

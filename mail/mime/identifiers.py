"""Message-ID, In-Reply-To and References: ids without their brackets."""

from __future__ import annotations

import re

from mail.mime import limits, words
from mail.mime.defects import Defect, Defects
from mail.mime.headers import Headers

_ID = re.compile(r"<([^<>\s]+)>")
_BARE = re.compile(r"[^<>\s\"(),;]+@[^<>\s\"(),;]+")


def message_id(headers: Headers, defects: Defects) -> str | None:
    """The message's own id, or None. One without brackets counts, and is flagged."""
    value = headers.first("message-id", defects)
    if value is None:
        return None
    text = words.one_line(words.raw_text(value, defects), defects)
    match = _ID.fullmatch(text)
    if match is None:
        defects.add(Defect.HEADER_BAD_MESSAGE_ID)
        match = _ID.search(text)
    found = match[1] if match else (text if _BARE.fullmatch(text) else None)
    if found is not None and len(found) > limits.MAX_MESSAGE_ID_CHARS:
        defects.add(Defect.HEADER_BAD_MESSAGE_ID)
        return None
    return found


def referenced(headers: Headers, name: str, defects: Defects) -> tuple[str, ...]:
    """The ids of In-Reply-To or References; only bracketed ones, the oldest and the newest kept."""
    found: list[str] = []
    for value in headers.all(name):
        text = words.one_line(words.raw_text(value, defects), defects)
        found += [one for one in _ID.findall(text) if len(one) <= limits.MAX_MESSAGE_ID_CHARS]
    unique = list(dict.fromkeys(found))
    if len(unique) > limits.MAX_REFERENCES:
        unique = [unique[0], *unique[1 - limits.MAX_REFERENCES :]]
    return tuple(unique)

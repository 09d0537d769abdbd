"""What a notice to the owner says: every fact of what waits, and how it is answered. Pure.

Text that others wrote stands behind a bar at the start of each line, and nothing in it can end its
line, turn its direction or hide, nor is it so long that a mail program would break it where no bar
stands: so no draft and no mail can write a line of the notice itself.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from guards.unseen import visible
from mail.types import Verb

#: The longest preview that is shown by mail, in characters: beyond it the console is the place.
MAX_PREVIEW = 60_000

#: Columns of others' text in one row, and of a field's value: no mail program breaks those.
_ROW = 72
_VALUE = 76

_RULE = "=" * 72
_ELSEWHERE = frozenset({"text", "attachments", "source"})
_LABELS = {
    "bcc": "Bcc",
    "from_name": "Name beside it",
    "headers": "Other headers",
    "cc": "Cc",
    "message_id": "Message-ID",
    "in_reply_to": "In-Reply-To",
    "reply_to": "Reply-To of the source, not used",
    "mime_sha256": "SHA-256 of it all",
    "automatic": "Marked as automatic",
    "size": "Bytes",
}
_WHY_NOT = {
    "console-only": "It is answered in the console only.",
    "too-large": "It is too large to be shown by mail, so it is answered in the console only.",
    "not-readable": "It cannot be shown now: open it in the console, which says why.",
}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What an approval shows, and until when the digest answers for it."""

    preview: Mapping[str, Any]
    digest: str
    valid_until: datetime


@dataclass(frozen=True, slots=True)
class Waiting:
    """One draft of a notice. `snapshot` is None where `why_not` says why it is only named."""

    label: str
    requested_by: str
    since: datetime
    url: str
    snapshot: Snapshot | None = None
    why_not: str = ""


def subject_of(number: int) -> str:
    """The inner subject of a notice; it names nothing."""
    return "1 draft waits for you" if number == 1 else f"{number} drafts wait for you"


def of_holds(waiting: Sequence[Waiting], *, more: int, url: str, key: str) -> str:
    """The whole text of an encrypted notice. `more` drafts wait beside these; `key` answers."""
    blocks = [_introduction(len(waiting) + more, key)]
    for number, one in enumerate(waiting, start=1):
        head = f"{_RULE}\n{number} of {len(waiting)}: {visible(one.label)}\n{_RULE}"
        blocks.append(f"{head}\n\n{_one(one)}")
    if more:
        blocks.append(f"{_RULE}\n\n{more} more wait. All of them: {url}")
    return "\n\n".join(blocks) + "\n"


def bare(number: int, *, url: str) -> str:
    """The text of a notice that shows nothing private and can be answered in the console only."""
    return (
        f"{subject_of(number)}.\n\nWhat it is stands in the console:\n{url}\n\n"
        "This notice is not encrypted, so it shows nothing and cannot be answered by mail.\n"
    )


def of_refusal(*, said: str, sentence: str, received_at: datetime, url: str) -> str:
    """The text of a notice that an answer did nothing."""
    return (
        f"Your mail of {moment(received_at)} did nothing: {sentence}\n\n"
        f"It spoke of: {said or 'no digest that could be read'}\n"
        f"The mail, and what became of it: {url}\n\n"
        "An answer is a new mail, signed by your key, whose only text is one line such as\n\n"
        "    approve DIGEST\n\nwith the whole digest of a draft that a notice of the last 24 hours"
        " showed.\n"
    )


def _introduction(number: int, key: str) -> str:
    return (
        f"{subject_of(number)}. Nothing of it leaves before you say so.\n\n"
        "Text of others stands behind `|`; `|+` goes on with the line above it.\n"
        f"Links only show. To answer by mail, sign a new mail with your key\n{key}\n"
        "whose only text is one of the lines that stand below each draft."
    )


def _one(one: Waiting) -> str:
    facts = [
        ("Asked for by", one.requested_by),
        ("Waits since", moment(one.since)),
        ("In the console", one.url),
    ]
    if one.snapshot is None:
        return f"{_listed(facts)}\n\n{_WHY_NOT.get(one.why_not, _WHY_NOT['not-readable'])}"
    shown = one.snapshot
    return "\n\n".join([_listed(facts), exact(shown.preview), _answers(shown)])


def exact(preview: Mapping[str, Any]) -> str:
    """Every field of a preview: what would leave, its files, and what it answers."""
    fields = [
        (_label(name), _value(value)) for name, value in preview.items() if name not in _ELSEWHERE
    ]
    blocks = [_listed(fields), f"Its text:\n{barred(str(preview.get('text', '')))}"]
    files = preview.get("attachments") or []
    blocks.append("Its attachments:\n" + ("\n".join(map(_file, files)) or "  none"))
    source = preview.get("source")
    blocks.append(_source(source) if isinstance(source, Mapping) else "It answers no mail.")
    return "\n\n".join(blocks)


def _answers(shown: Snapshot) -> str:
    return (
        f"Valid until {moment(shown.valid_until)}, and only while nothing of it changes.\n"
        f"Digest of all of this:\n\n    {shown.digest}\n\nTo answer by mail:\n\n"
        f"    {Verb.APPROVE} {shown.digest}\n"
        f"    {Verb.REJECT} {shown.digest} and why\n"
        f"    {Verb.LATER} {shown.digest}"
    )


def _source(source: Mapping[str, Any]) -> str:
    fields = [(_label(name), _value(value)) for name, value in source.items() if name != "text"]
    return (
        f"What it answers or works for:\n{_listed(fields)}\n\n"
        f"That text:\n{barred(str(source.get('text', '')))}"
    )


def _file(file: object) -> str:
    facts = file if isinstance(file, Mapping) else {"name": file}
    rows = (f"{name} " + "\n    + ".join(_value_rows(_value(facts[name]))) for name in facts)
    return "  " + "\n    ".join(rows)


def _listed(fields: Sequence[tuple[str, str]]) -> str:
    width = max((len(name) for name, _ in fields), default=0) + 1
    onward = "\n" + " " * width + " + "
    rows = ((name, onward.join(_value_rows(visible(value)))) for name, value in fields)
    return "\n".join(f"  {name + ':':<{width}} {value}" for name, value in rows)


def _label(name: str) -> str:
    return _LABELS.get(name, visible(name.replace("_", " ").capitalize()))


def _value(value: object) -> str:
    if value is None or value == "" or value == []:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(_value(entry) for entry in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_value(entry)}" for name, entry in value.items())
    return visible(str(value))


def barred(text: str) -> str:
    """Text of others, each of its lines behind a bar."""
    lines = text.replace("\r\n", "\n").split("\n")
    rows = ("\n|+ ".join(_folded(visible(line), _ROW)) for line in lines)
    return "\n".join(f"| {row}" if row else "|" for row in rows)


def _value_rows(value: str) -> list[str]:
    """A field's value in rows. What has no gap is whole: an address, a digest, a link."""
    return _folded(value, _VALUE) if any(map(str.isspace, value)) else [value]


def _folded(line: str, most: int) -> list[str]:
    """The line in rows of at most so many columns."""
    rows, width = [""], 0
    for one in line:
        columns = 2 if unicodedata.east_asian_width(one) in {"W", "F"} else 1
        if width + columns > most:
            rows.append("")
            width = 0
        rows[-1] += one
        width += columns
    return rows


def moment(when: datetime) -> str:
    """A moment to the minute, in UTC."""
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC"

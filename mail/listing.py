"""The inbox at the shell: DES-018's table, 80 columns wide to the column, whatever the script.

Widths are display widths, so that CJK and emoji line up. An address is never cut: a long one drops
the name, then pushes SUBJECT down to 10 columns, then the row out. Text from mail is cleaned of
control and direction characters first, so that it cannot steer a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo

from wcwidth import iter_graphemes, wcswidth

from guards.types import TrustLevel

#: Shown instead of the subject of a sender who holds no `r`.
REDACTED = "[redacted — no read permission]"

TABLE_WIDTH = 80
FROM_WIDTH = 37
SUBJECT_MINIMUM = 10

_GAP = "  "
_DATE_WIDTH = 6
_ID_WIDTH = 3
_GLYPHS = {
    TrustLevel.TRUSTED: "✓",
    TrustLevel.VERIFIED: "+",
    TrustLevel.UNVERIFIED: "?",
    TrustLevel.UNTRUSTED: "✗",
}
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
#: Joins emoji to one; the only invisible character that is kept.
_JOINER = "\u200d"
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    "\ud800-\udfff]"
)


@dataclass(frozen=True, slots=True)
class Line:
    """One message of the table. `number` is its short id; `address` is empty without identity."""

    number: int
    unread: bool
    name: str
    address: str
    when: datetime
    trust: TrustLevel
    subject: str


def render(lines: Sequence[Line], *, zone: tzinfo) -> list[str]:
    """The table with its header, one string a row, each padded to its full width."""
    id_width = max([_ID_WIDTH, *(len(str(line.number)) for line in lines)])
    header = _row(_pad("▶", id_width), "R", "FROM", "DATE", "T", "SUBJECT", from_width=FROM_WIDTH)
    return [header, *(_line(line, id_width, zone) for line in lines)]


def _line(line: Line, id_width: int, zone: tzinfo) -> str:
    when = line.when.astimezone(zone)
    return _row(
        str(line.number).rjust(id_width),
        "●" if line.unread else " ",
        sender_cell(line.name, line.address),
        f"{_MONTHS[when.month - 1]} {when.day:02}",
        _GLYPHS[line.trust],
        line.subject,
        from_width=FROM_WIDTH,
    )


def _row(
    number: str, read: str, sender: str, date: str, glyph: str, subject: str, *, from_width: int
) -> str:
    """Put the cells together; SUBJECT takes what is left, and never less than its minimum."""
    fixed = (number, read, _pad(sender, from_width), _pad(date, _DATE_WIDTH), glyph)
    left = _GAP.join(fixed) + _GAP
    room = max(SUBJECT_MINIMUM, TABLE_WIDTH - wcswidth(left))
    return left + _pad(shorten(clean(subject), room), room)


def sender_cell(name: str, address: str) -> str:
    """`Name <address>`, the name cut to fit; the bare address where no name is, or none fits."""
    if not address:
        return "(no identity)"
    shown = clean(address)
    room = FROM_WIDTH - wcswidth(shown) - 3
    cut = shorten(clean(name), room) if room > 0 else ""
    return f"{cut} <{shown}>" if cut else shown


def shorten(text: str, width: int) -> str:
    """The text in at most `width` columns; what is cut off becomes an ellipsis."""
    if wcswidth(text) <= width:
        return text
    kept = ""
    for grapheme in iter_graphemes(text):
        if wcswidth(kept + grapheme) > width - 1:
            break
        kept += grapheme
    return kept + "…"


def clean(text: str) -> str:
    """One line of visible characters; anything else, in a run, becomes one space."""
    shown = " ".join(_UNSEEN.sub(" ", text).split())
    if shown.isprintable() and wcswidth(shown) >= 0:
        return shown
    return "".join(one if one == _JOINER or one.isprintable() else "\ufffd" for one in shown)


def _pad(text: str, width: int) -> str:
    return text + " " * (width - wcswidth(text))

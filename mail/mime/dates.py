"""The Date header (RFC 5322, obsolete zones included), as a moment in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_MONTH_NAMES = "jan feb mar apr may jun jul aug sep oct nov dec"
_MONTHS = _MONTH_NAMES.split()
_ZONES = {"ut": 0, "utc": 0, "gmt": 0, "z": 0, "est": -5, "edt": -4, "cst": -6, "cdt": -5}
_ZONES |= {"mst": -7, "mdt": -6, "pst": -8, "pdt": -7}
_DATE = re.compile(
    r"(?:\([^()]*\)\s*)*(?:[A-Za-z]{3,9}\s*,?\s*)?"
    r"([0-9]{1,2})[\s\-]+([A-Za-z]{3})[a-z]*[\s\-]+([0-9]{2,4})\s*,?\s+"
    r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(?:\.[0-9]+)?)?"
    r"(?:\s*([+\-][0-9]{4})|\s+([A-Za-z]{1,5}))?\s*(?:\([^()]*\)\s*)*\Z"
)
#: `Mon Nov 30 09:00:00 2026`, as C's asctime has it and old programs send it.
_ASCTIME = re.compile(
    r"(?:[A-Za-z]{3},?\s+)?([A-Za-z]{3})\s+([0-9]{1,2})\s+([0-9:]{5,8})\s+([0-9]{4})\Z"
)


def parse(text: str) -> datetime | None:
    """The moment a Date header names, or None. No zone, or an unknown one, means UTC."""
    match = _DATE.match(_ASCTIME.sub(r"\2 \1 \4 \3", text.strip()[:200]))
    if match is None or match[2].lower() not in _MONTHS:
        return None
    year = int(match[3])
    if len(match[3]) < 4:
        year += 2000 if year < 50 else 1900
    try:
        local = datetime(
            year,
            _MONTHS.index(match[2].lower()) + 1,
            int(match[1]),
            int(match[4]),
            int(match[5]),
            min(int(match[6] or 0), 59),
            tzinfo=UTC,
        )
        return local - _offset(match[7], match[8])
    except (ValueError, OverflowError):
        return None


def _offset(numeric: str | None, name: str | None) -> timedelta:
    """How far ahead of UTC a zone is; ValueError for an offset that no zone can have."""
    if numeric is None:
        return timedelta(hours=_ZONES.get((name or "").lower(), 0))
    hours, minutes = int(numeric[1:3]), int(numeric[3:5])
    if hours > 23 or minutes > 59:
        raise ValueError(f"{numeric} is no offset")
    minutes += hours * 60
    return timedelta(minutes=-minutes if numeric[0] == "-" else minutes)

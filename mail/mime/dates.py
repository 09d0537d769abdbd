"""The Date header (RFC 5322, obsolete zones included), as a moment in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_MONTH_NAMES = "jan feb mar apr may jun jul aug sep oct nov dec"
_MONTHS = _MONTH_NAMES.split()
_ZONES = {"ut": 0, "utc": 0, "gmt": 0, "z": 0, "est": -5, "edt": -4, "cst": -6, "cdt": -5}
_ZONES |= {"mst": -7, "mdt": -6, "pst": -8, "pdt": -7}
_DATE = re.compile(
    r"(?:[A-Za-z]{3,9}\s*,?\s*)?([0-9]{1,2})[\s\-]+([A-Za-z]{3})[a-z]*[\s\-]+([0-9]{2,4})\s*,?\s+"
    r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(?:\.[0-9]+)?)?"
    r"(?:\s*([+\-][0-9]{4})|\s+([A-Za-z]{1,5}))?\s*(?:\([^()]*\)\s*)*\Z"
)


def parse(text: str) -> datetime | None:
    """The moment a Date header names, or None. No zone, or an unknown one, means UTC."""
    match = _DATE.match(text.strip()[:200])
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
    if numeric is None:
        return timedelta(hours=_ZONES.get((name or "").lower(), 0))
    minutes = int(numeric[1:3]) * 60 + int(numeric[3:5])
    return timedelta(minutes=-minutes if numeric[0] == "-" else minutes)

"""Reads FETCH responses as imaplib collected them, whatever else the server said in between.

imaplib keeps untagged FETCH data as a flat list: bytes for a line, a pair (line, literal) where a
literal came. A response is complete only with its closing parenthesis and with every literal as
long as it was declared; anything else, and flags of mails that nobody asked for, is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

_START = re.compile(rb"\A\d+ \(")
_DECLARED = re.compile(rb"\{(\d+)\+?\}\Z")
_UID = re.compile(rb"\bUID (\d+)")
_SIZE = re.compile(rb"\bRFC822\.SIZE (\d+)")
_FLAGS = re.compile(rb"\bFLAGS \(([^)]*)\)")
_DATE = re.compile(
    rb'\bINTERNALDATE "([ \d]\d)-([A-Za-z]{3})-(\d{4}) (\d\d):(\d\d):(\d\d) ([+-])(\d\d)(\d\d)"'
)
_MONTHS = {
    name: number
    for number, name in enumerate(
        b"jan feb mar apr may jun jul aug sep oct nov dec".split(), start=1
    )
}


@dataclass(slots=True)
class FetchItem:
    """One complete FETCH response: its attributes as text, its literal if it brought one."""

    uid: int
    size: int | None
    flags: frozenset[str] | None
    internal_date: datetime | None
    body: bytes | None


def read(collected: Iterable[object]) -> Iterator[FetchItem]:
    """The complete responses that name a UID, in the order they came."""
    for attributes, literals in _responses(collected):
        uid = _UID.search(attributes)
        if uid is None or not attributes.rstrip().endswith(b")"):
            continue
        size = _SIZE.search(attributes)
        flags = _FLAGS.search(attributes)
        yield FetchItem(
            uid=int(uid.group(1)),
            size=int(size.group(1)) if size else None,
            flags=_flags(flags.group(1)) if flags else None,
            internal_date=_internal_date(attributes),
            body=literals[0] if len(literals) == 1 else None,
        )


def _responses(collected: Iterable[object]) -> Iterator[tuple[bytes, list[bytes]]]:
    """Join the flat list into (text without literals, literals); short literals void a response."""
    text: bytes | None = None
    literals: list[bytes] = []
    for piece in collected:
        line, literal = piece if isinstance(piece, tuple) else (piece, None)
        if not isinstance(line, bytes):
            continue
        if _START.match(line):
            if text is not None:
                yield text, literals
            text, literals = b"", []
        if text is None:
            continue
        text += line
        if literal is not None:
            declared = _DECLARED.search(line)
            if declared is None or int(declared.group(1)) != len(literal):
                text = None
                continue
            literals.append(literal)
    if text is not None:
        yield text, literals


def _flags(listed: bytes) -> frozenset[str]:
    return frozenset(flag.decode("ascii", "replace") for flag in listed.split())


def _internal_date(attributes: bytes) -> datetime | None:
    found = _DATE.search(attributes)
    if found is None:
        return None
    day, month, year, hour, minute, second, sign, off_hours, off_minutes = found.groups()
    offset = timedelta(hours=int(off_hours), minutes=int(off_minutes))
    try:
        return datetime(
            int(year),
            _MONTHS[month.lower()],
            int(day),
            int(hour),
            int(minute),
            int(second),
            tzinfo=timezone(-offset if sign == b"-" else offset),
        ).astimezone(UTC)
    except (KeyError, ValueError, OverflowError):
        return None

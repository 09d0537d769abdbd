"""Header blocks on raw bytes: lines, folding, names. Nothing is decoded here.

A block ends at its first empty line. Lines among the headers that are none are left out and
flagged, so that nothing behind them (a second From) goes unseen; at the block's end they are text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mail.mime import limits
from mail.mime.defects import Defect, Defects

_NAME = re.compile(rb"([!-9;-~]{1,200})([ \t]*):")


@dataclass(frozen=True, slots=True)
class Field:
    """One header field: its name in lower case, its value unfolded.

    `damaged` says that it was cut, held a CR that ended no line, or had space before its colon: it
    may mean another thing to another reader, so it names nobody.
    """

    name: str
    value: bytes
    damaged: bool = False


@dataclass(frozen=True, slots=True)
class Headers:
    """The fields of one message or part, in order.

    `orderly` says that every reader finds the same fields in them: none is damaged, and no line
    among them is none.
    """

    fields: tuple[Field, ...] = ()
    orderly: bool = True

    def all(self, name: str) -> tuple[bytes, ...]:
        """Every value of a header, in order."""
        return tuple(field.value for field in self.fields if field.name == name)

    def first(self, name: str, defects: Defects | None = None) -> bytes | None:
        """The first value; `defects` learns that there are more."""
        values = self.all(name)
        if len(values) > 1 and defects is not None:
            defects.add(Defect.HEADER_DUPLICATE)
        return values[0] if values else None


@dataclass(slots=True)
class _Draft:
    """A field while its lines are read; `lines` empty means a line that is no header."""

    start: int
    name: str
    lines: list[bytes]
    size: int
    cut: bool = False
    spaced: bool = False

    @property
    def damaged(self) -> bool:
        return self.cut or self.spaced or any(b"\r" in line for line in self.lines)


def split(raw: bytes, start: int, end: int, defects: Defects, *, top: bool) -> tuple[Headers, int]:
    """The headers that begin at `start`, and where the body begins.

    In a part (`top` false) a first line that is no header begins the body at once.
    """
    drafts, body = _read(raw, start, end, defects, top=top)
    while drafts and not drafts[-1].lines:
        body = drafts.pop().start
        defects.add(Defect.HEADER_MISSING_SEPARATOR)
    orderly = all(draft.lines and not draft.damaged for draft in drafts)
    fields = []
    for draft in drafts:
        if draft.cut:
            defects.add(Defect.HEADER_TOO_LONG)
        if draft.lines:
            fields.append(Field(draft.name, _unfold(draft.lines, defects), draft.damaged))
        else:
            defects.add(Defect.HEADER_MALFORMED_LINE)
    return Headers(tuple(fields), orderly), body


def _read(
    raw: bytes, start: int, end: int, defects: Defects, *, top: bool
) -> tuple[list[_Draft], int]:
    drafts: list[_Draft] = []
    position = start
    kept = 0
    while position < end:
        newline = raw.find(b"\n", position, end)
        after = end if newline < 0 else newline + 1
        line = raw[position : min(after, position + limits.MAX_HEADER_BYTES)].rstrip(b"\r\n")
        if not line:
            return drafts, after
        if len(drafts) >= limits.MAX_HEADER_FIELDS or kept > limits.MAX_HEADER_BLOCK_BYTES:
            defects.add(Defect.HEADER_TOO_LARGE)
            return drafts, end
        took = _take(drafts, position, line, defects)
        if not took and not top and not drafts[0].lines:
            return drafts, after
        if after - position > limits.MAX_HEADER_BYTES:
            drafts[-1].cut = True
        kept += took
        position = after
    return drafts, end


def _take(drafts: list[_Draft], start: int, line: bytes, defects: Defects) -> int:
    """Add one line to the drafts; the bytes it keeps, 0 when it is no header or too much of one."""
    if line[:1] in b" \t" and drafts and drafts[-1].lines:
        return _continue(drafts[-1], line)
    match = _NAME.match(line)
    if match is None:
        if not drafts or drafts[-1].lines:  # a run of such lines is one draft
            drafts.append(_Draft(start, "", [], 0))
        return 0
    if match[2]:
        defects.add(Defect.HEADER_SPACE_BEFORE_COLON)
    name = match[1].decode("ascii").lower()
    drafts.append(_Draft(start, name, [line[match.end() :]], len(line), spaced=bool(match[2])))
    return len(line)


def _continue(draft: _Draft, line: bytes) -> int:
    draft.size += len(line)
    if draft.size > limits.MAX_HEADER_BYTES:
        draft.cut = True
        return 0
    draft.lines.append(line)
    return len(line)


def _unfold(lines: list[bytes], defects: Defects) -> bytes:
    value = b"".join(lines)
    if b"\r" in value:
        defects.add(Defect.HEADER_BARE_CR)
        value = value.replace(b"\r ", b" ").replace(b"\r\t", b"\t").replace(b"\r", b" ")
    return value.strip(b" \t")

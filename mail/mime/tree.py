"""The MIME tree on raw bytes: RFC 2046 delimiters at line starts, bounded, without recursion.

A part is a slice of the message. An outer delimiter always wins over an inner one, a missing close
delimiter ends a multipart where its parent's slice ends, and a message/rfc822 is a leaf.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from mail.mime import headers as header_blocks
from mail.mime import limits, parameters
from mail.mime.defects import Defect, Defects
from mail.mime.headers import Headers
from mail.mime.parameters import Parameters

_AFTER_DELIMITER = re.compile(rb"(--)?[ \t\r]*(?:\n|\Z)")


@dataclass(slots=True)
class Node:
    """One part: its slice of the raw bytes, its headers, its children in order.

    `start`–`end` is the whole part with its headers, `body` where its content begins. `type` is
    what it is read as, `encoding` its transfer encoding in lower case (empty where none is
    declared), `outside` holds the slices of a multipart that belong to none of its parts.
    """

    path: str
    start: int
    end: int
    body: int
    depth: int
    headers: Headers
    type: str
    content_type: Parameters
    disposition: Parameters
    encoding: str = ""
    children: list[Node] = field(default_factory=list)
    outside: list[tuple[int, int]] = field(default_factory=list)
    is_multipart: bool = False

    @property
    def is_marked_attachment(self) -> bool:
        """Whether its Content-Disposition says `attachment`."""
        return parameters.token(self.disposition) == "attachment"

    def descend(self) -> list[Node]:
        """This node and all below it, in document order."""
        found: list[Node] = []
        waiting = [self]
        while waiting:
            node = waiting.pop()
            found.append(node)
            waiting.extend(reversed(node.children))
        return found


def build(raw: bytes, start: int, defects: Defects) -> Node:
    """The tree of a message that begins at `start`. What is beyond the bounds is left out."""
    root = _node(raw, "1", start, len(raw), 0, "text/plain", defects)
    waiting = [root]
    count = 1
    while waiting:
        node = waiting.pop()
        if not node.type.startswith("multipart/"):
            continue
        slices = _slices(raw, node, limits.MAX_PARTS - count, defects)
        if slices is None:
            continue
        count += len(slices)
        if count >= limits.MAX_PARTS:
            defects.add(Defect.MIME_TOO_MANY_PARTS)
        elif node.depth >= limits.MAX_DEPTH:
            defects.add(Defect.MIME_TOO_DEEP)
        else:
            _adopt(raw, node, slices, defects)
            waiting.extend(reversed(node.children))
            continue
        break
    if root.is_multipart:
        root.path = "0"  # its first child is "1", as a message of one part is
    return root


def _adopt(raw: bytes, node: Node, slices: list[tuple[int, int]], defects: Defects) -> None:
    default = "message/rfc822" if node.type == "multipart/digest" else "text/plain"
    prefix = f"{node.path}." if node.depth else ""
    node.is_multipart = True
    node.children = [
        _node(raw, f"{prefix}{number}", start, end, node.depth + 1, default, defects)
        for number, (start, end) in enumerate(slices, start=1)
    ]


def _node(
    raw: bytes, path: str, start: int, end: int, depth: int, default: str, defects: Defects
) -> Node:
    found, body = header_blocks.split(raw, start, end, defects, top=depth == 0)
    value = found.first("content-type", defects)
    content_type = parameters.parse(value or b"", defects)
    name = parameters.media_type(content_type)
    if value is None or not content_type.value:
        name = default
    elif name is None:
        defects.add(Defect.HEADER_BAD_CONTENT_TYPE)
    disposition = parameters.parse(found.first("content-disposition", defects) or b"", defects)
    encoding = found.first("content-transfer-encoding", defects)
    return Node(
        path=path,
        start=start,
        end=end,
        body=body,
        depth=depth,
        headers=found,
        type=name or "text/plain",
        content_type=content_type,
        disposition=disposition,
        encoding=parameters.token(parameters.parse(encoding, set())) if encoding else "",
    )


def _slices(raw: bytes, node: Node, most: int, defects: Defects) -> list[tuple[int, int]] | None:
    """The children's slices; None when the node cannot be split and is a text instead."""
    boundary = node.content_type.get("boundary").rstrip()
    if not boundary or len(boundary) > limits.MAX_BOUNDARY_CHARS:
        defects.add(Defect.MIME_BAD_BOUNDARY)
        node.type = "text/plain"
        return None
    slices, closed = _between_delimiters(raw, node, boundary.encode("utf-8"), most)
    if not slices:
        defects.add(Defect.MIME_BOUNDARY_NOT_FOUND)
        node.type = "text/plain"
        return None
    if not closed:
        defects.add(Defect.MIME_MISSING_CLOSE)
    if node.encoding in ("base64", "quoted-printable"):
        defects.add(Defect.MIME_ENCODED_MULTIPART)
    return slices


def _between_delimiters(
    raw: bytes, node: Node, boundary: bytes, most: int
) -> tuple[list[tuple[int, int]], bool]:
    """Cut at delimiter lines: at most `most` + 1 slices, and whether a close delimiter came."""
    slices: list[tuple[int, int]] = []
    opened: int | None = None
    position = node.body
    while len(slices) <= most:
        found = _delimiter(raw, node, boundary, position)
        if found is None:
            break
        before, after, closes = found
        if opened is None:
            node.outside.append((node.body, before))
        else:
            slices.append((opened, max(opened, before)))
        if closes:
            if opened is None:
                return [], False
            node.outside.append((after, node.end))
            return slices, True
        opened = position = after
    if opened is not None:
        slices.append((opened, node.end))
    return slices, False


def _delimiter(
    raw: bytes, node: Node, boundary: bytes, position: int
) -> tuple[int, int, bool] | None:
    """The next delimiter line: where what precedes it ends, where its line ends, if it closes.

    The line break before a delimiter belongs to it (RFC 2046 5.1.1).
    """
    dashes = b"--" + boundary
    start = position if raw.startswith(dashes, position, node.end) else -1
    while True:
        if start < 0:
            newline = raw.find(b"\n" + dashes, position, node.end)
            if newline < 0:
                return None
            start = newline + 1
        match = _AFTER_DELIMITER.match(raw, start + len(dashes), node.end)
        if match is not None:
            before = start
            if before > node.body and raw[before - 1 : before] == b"\n":
                before -= 2 if raw[before - 2 : before - 1] == b"\r" else 1
            return max(before, node.body), match.end(), match[1] is not None
        position, start = start, -1

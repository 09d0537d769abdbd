"""The leaves of a tree as parts: decoded content, names, and which of them are the body."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from mail.mime import charsets, limits, parameters, transfer, words
from mail.mime.defects import Defect, Defects
from mail.mime.parameters import Parameters
from mail.mime.tree import Node
from mail.types import MimeNode, ParsedPart

_SIGNATURES = frozenset(
    {
        "application/pgp-signature",
        "application/pkcs7-signature",
        "application/x-pkcs7-signature",
    }
)


@dataclass(frozen=True, slots=True)
class Body:
    """The chosen leaves of a message, and its text parts decoded (LF only)."""

    parts: tuple[ParsedPart, ...]
    text: str | None
    html: str | None
    signed_text: str | None


def read(raw: bytes, root: Node, signed: Node | None, defects: Defects) -> Body:
    """Decode every leaf. `signed` is the child of a top-level multipart/signed that is signed."""
    nodes = root.descend()
    signatures = {id(node) for parent in nodes for node in _signature(parent)}
    leaves = [node for node in nodes if not node.is_multipart]
    text = _first(leaves, "text/plain")
    html = _first(leaves, "text/html")
    inside = {id(node) for node in signed.descend()} if signed else set()
    own = _first([node for node in leaves if id(node) in inside], "text/plain")
    parts = []
    for node in leaves:
        is_text, is_html = node is text, node is html
        parts.append(
            _part(
                raw,
                node,
                defects,
                is_text=is_text,
                is_html=is_html,
                is_signature=id(node) in signatures,
                is_signed=id(node) in inside,
            )
        )
    contents = {id(node): part for node, part in zip(leaves, parts, strict=True)}
    return Body(
        parts=tuple(parts),
        text=_text(contents[id(text)], defects) if text else None,
        html=_text(contents[id(html)], defects) if html else None,
        signed_text=_text(contents[id(own)], defects) if own else None,
    )


def structure(root: Node) -> MimeNode:
    """The tree for diagnosis: types and sizes, never content."""
    made: dict[int, MimeNode] = {}
    for node in reversed(root.descend()):
        children = tuple(made.pop(id(child)) for child in node.children)
        name = None if node.is_multipart else _name(node, set())
        made[id(node)] = MimeNode(node.path, node.type, node.end - node.body, name, children)
    return made[id(root)]


def charset(content_type: Parameters) -> str:
    """The declared charset; empty where there is none."""
    return content_type.get("charset").strip()[:64]


def _signature(parent: Node) -> list[Node]:
    """The signature of a multipart/signed: never an attachment."""
    if parent.type != "multipart/signed":
        return []
    return [child for child in parent.children[1:2] if child.type in _SIGNATURES]


def _first(leaves: list[Node], media_type: str) -> Node | None:
    for node in leaves:
        if node.type == media_type and not node.is_marked_attachment:
            return node
    return None


def _part(
    raw: bytes,
    node: Node,
    defects: Defects,
    *,
    is_text: bool,
    is_html: bool,
    is_signature: bool,
    is_signed: bool,
) -> ParsedPart:
    declared = charset(node.content_type)
    as_text = (declared or "utf-8") if node.type.startswith("text/") else None
    content = transfer.decode(raw[node.body : node.end], node.encoding, defects, charset=as_text)
    return ParsedPart(
        path=node.path,
        type=node.type,
        name=_name(node, defects),
        content=content,
        sha256=hashlib.sha256(content).hexdigest(),
        disposition=parameters.token(node.disposition)[:16],
        content_id=_content_id(node),
        charset=declared,
        is_text=is_text,
        is_html=is_html,
        is_signature=is_signature,
        is_signed=is_signed,
    )


def _name(node: Node, defects: Defects) -> str | None:
    """The shown name: text only, never a path to anything of ours."""
    name = node.disposition.shown("filename", defects) or node.content_type.shown("name", defects)
    if "/" in name or "\\" in name:
        defects.add(Defect.ATTACHMENT_PATH_IN_NAME)
    if len(name) > limits.MAX_NAME_CHARS:
        defects.add(Defect.ATTACHMENT_NAME_CUT)
    return name[: limits.MAX_NAME_CHARS] or None


def _content_id(node: Node) -> str:
    value = node.headers.first("content-id")
    return words.decode(value, set()).strip("<>")[: limits.MAX_NAME_CHARS] if value else ""


def _text(part: ParsedPart, defects: Defects) -> str:
    """A text part's content as text with LF line ends."""
    text, held = charsets.decode(part.content, part.charset)
    if not held:
        unknown = part.charset and charsets.known(part.charset) is None
        defects.add(Defect.TEXT_UNKNOWN_CHARSET if unknown else Defect.TEXT_BAD_CHARSET)
    if "\0" in text:
        defects.add(Defect.TEXT_CONTROL_CHARACTER)
        text = text.replace("\0", "\ufffd")
    return text.replace("\r\n", "\n").replace("\r", "\n")

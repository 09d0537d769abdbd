"""`value; name=value` headers: media types, dispositions, RFC 2231 continuations. Linear."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

from mail.mime import charsets, limits, words
from mail.mime.defects import Defect, Defects

_TOKEN = re.compile(r"[^\x00-\x20\x7f-\xff()<>@,;:\\\"/\[\]?=]+")
_TYPE = re.compile(r"\s*([!#$&^_.+A-Za-z0-9\-]+)\s*/\s*([!#$&^_.+A-Za-z0-9\-]+)\s*\Z")
_SECTION = re.compile(r"([^*]+)(?:\*(0|[1-9][0-9]{0,4}))?(\*)?\Z")
_QUOTED_END = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_UNQUOTE = re.compile(r"\\(.)", re.DOTALL)
_SHOWN = frozenset({"name", "filename"})
_CHARSET_PREFIX = re.compile(r"([^']*)'([^']*)'(.*)\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Parameters:
    """A header's main value and its parameters.

    `plain` are `name=value`; `extended` those of RFC 2231, joined and decoded.
    """

    value: str
    plain: dict[str, str] = field(default_factory=dict)
    extended: dict[str, str] = field(default_factory=dict)

    def get(self, name: str) -> str:
        """A parameter for machines: the plain form first; empty where there is none."""
        return self.plain.get(name) or self.extended.get(name, "")

    def shown(self, name: str, defects: Defects) -> str:
        """A parameter for people: the RFC 2231 form first, else with encoded words decoded."""
        if name in self.extended:
            return words.one_line(self.extended[name], defects)
        return words.decode_words(self.plain.get(name, ""), defects)


def parse(value: bytes, defects: Defects) -> Parameters:
    """Split a header's value; damage is flagged and skipped."""
    pieces = _split(words.raw_text(value, defects), defects)
    main = pieces.pop(0).strip() if pieces else ""
    plain: dict[str, str] = {}
    sections: dict[str, dict[int, tuple[bool, str]]] = {}
    for piece in pieces:
        if piece.strip():
            _take(piece, plain, sections, defects)
    extended = {name: _join(parts, defects) for name, parts in sections.items()}
    return Parameters(main, plain, extended)


def media_type(parameters: Parameters) -> str | None:
    """`type/subtype` in lower case, or None where it is not of that form."""
    match = _TYPE.match(_without_comments(parameters.value))
    if match is None:
        return None
    name = f"{match[1]}/{match[2]}".lower()
    return name if len(name) <= limits.MAX_TYPE_CHARS else None


def token(parameters: Parameters) -> str:
    """The main value's first token in lower case (`base64`, `attachment`)."""
    match = _TOKEN.match(_without_comments(parameters.value).strip().strip('"'))
    return match[0].lower() if match else ""


def _without_comments(text: str) -> str:
    """The text without RFC 5322 comments; an unclosed one runs to the end."""
    if "(" not in text:
        return text
    kept: list[str] = []
    depth = 0
    for piece in re.split(r"(\\.|[()])", text):
        if piece == "(":
            depth += 1
        elif piece == ")":
            depth = max(0, depth - 1)
        elif not depth:
            kept.append(piece)
    return "".join(kept)


def _split(text: str, defects: Defects) -> list[str]:
    """Cut at semicolons outside quotes."""
    pieces: list[str] = []
    start = position = 0
    for match in re.finditer(r'[;"]', text):
        if match.start() < position:
            continue
        if match[0] == ";":
            pieces.append(text[start : match.start()])
            start = match.end()
            continue
        end = _QUOTED_END.match(text, match.end())
        if end is None:
            defects.add(Defect.HEADER_BAD_PARAMETER)
            break
        position = end.end()
    pieces.append(text[start:])
    return pieces


def _take(
    piece: str,
    plain: dict[str, str],
    sections: dict[str, dict[int, tuple[bool, str]]],
    defects: Defects,
) -> None:
    name, equals, value = piece.partition("=")
    section = _SECTION.match(_without_comments(name).strip().lower())
    if not equals or section is None:
        defects.add(Defect.HEADER_BAD_PARAMETER)
        return
    text = _value(value, shown=section[1] in _SHOWN)
    if section[2] is None and section[3] is None:
        if section[1] in plain:
            defects.add(Defect.HEADER_BAD_PARAMETER)
        plain.setdefault(section[1], text)
        return
    parts = sections.setdefault(section[1], {})
    number = int(section[2] or 0)
    if number in parts:
        defects.add(Defect.HEADER_BAD_PARAMETER)
    parts.setdefault(number, (section[3] is not None, text))


def _value(text: str, *, shown: bool) -> str:
    """A parameter's value; an unquoted name keeps its spaces and brackets, as mail has them."""
    stripped = text.strip()
    if stripped.startswith('"'):
        end = _QUOTED_END.match(stripped, 1)
        inner = stripped[1 : end.end() - 1] if end else stripped[1:]
        return _UNQUOTE.sub(r"\1", inner)
    return stripped if shown else stripped.partition("(")[0].strip()


def _join(parts: dict[int, tuple[bool, str]], defects: Defects) -> str:
    """Join numbered sections; the first one names the charset of the percent-encoded ones."""
    charset = ""
    content: list[bytes] = []
    for number in range(len(parts)):
        if number not in parts:
            defects.add(Defect.HEADER_BAD_PARAMETER)
            break
        encoded, text = parts[number]
        if number == 0 and encoded and (prefix := _CHARSET_PREFIX.match(text)):
            charset, text = prefix[1], prefix[3]
        content.append(unquote_to_bytes(text) if encoded else text.encode("utf-8"))
    if not any(encoded for encoded, _ in parts.values()):
        return words.decode_words(b"".join(content).decode("utf-8"), defects)
    decoded, held = charsets.decode(b"".join(content), charset)
    if not held:
        defects.add(Defect.HEADER_BAD_PARAMETER)
    return decoded

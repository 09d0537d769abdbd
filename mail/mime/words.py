"""Header text: encoded words (RFC 2047) and raw bytes, decoded without losing text.

Decoding never creates structure: addresses and parameters are split first, on what stood there.
"""

from __future__ import annotations

import binascii
import re

from mail.mime import charsets
from mail.mime.defects import Defect, Defects

_WORD = re.compile(r"=\?([A-Za-z0-9_.:+\-]+)(?:\*[A-Za-z0-9\-]*)?\?([bBqQ])\?([^?\r\n]*)\?=")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_BASE64_NOISE = re.compile(r"[^A-Za-z0-9+/]")


def raw_text(value: bytes, defects: Defects) -> str:
    """The bytes of a header as text: UTF-8 (RFC 6532), or one character a byte where it is not."""
    if value.isascii():
        return value.decode("ascii")
    text, held = charsets.decode(value, "utf-8")
    if not held:
        defects.add(Defect.HEADER_BAD_CHARSET)
    return text


def decode(value: bytes, defects: Defects) -> str:
    """A header's value as people read it, on one line, without control characters."""
    return decode_words(raw_text(value, defects), defects)


def decode_words(text: str, defects: Defects) -> str:
    """Decode the encoded words of a text to one line; what is damaged stays as it stands."""
    return one_line(_decoded(text, defects) if "=?" in text else text, defects)


def raw_words(text: str) -> str:
    """The text with its encoded words decoded and nothing cleaned: what a reader may see."""
    return _decoded(text, set())


def _decoded(text: str, defects: Defects) -> str:
    pieces: list[str] = []
    run: list[tuple[str, bytes]] = []
    position = 0
    for word in _WORD.finditer(text):
        between = text[position : word.start()]
        if not (run and not between.strip(" \t")):
            _flush(run, pieces, defects)
            pieces.append(between)
        content = _content(word[2], word[3])
        if content is None:
            defects.add(Defect.HEADER_BAD_ENCODED_WORD)
            _flush(run, pieces, defects)
            pieces.append(word[0])
        else:
            run.append((word[1].lower(), content))
        position = word.end()
    _flush(run, pieces, defects)
    pieces.append(text[position:])
    return "".join(pieces)


def _content(encoding: str, text: str) -> bytes | None:
    encoded = text.encode("utf-8")
    if encoding in "qQ":
        return binascii.a2b_qp(encoded, header=True)
    compact = _BASE64_NOISE.sub("", text)
    if text and not compact:
        return None
    try:
        return binascii.a2b_base64(compact + "=" * (-len(compact) % 4))
    except binascii.Error:
        return None


def _flush(run: list[tuple[str, bytes]], pieces: list[str], defects: Defects) -> None:
    """Decode neighbours of one charset together: a character may be split between two words."""
    position = 0
    while position < len(run):
        charset = run[position][0]
        end = position
        while end < len(run) and run[end][0] == charset:
            end += 1
        text, held = charsets.decode(b"".join(part for _, part in run[position:end]), charset)
        if not held:
            defects.add(Defect.HEADER_BAD_ENCODED_WORD)
        pieces.append(text)
        position = end
    run.clear()


def one_line(text: str, defects: Defects) -> str:
    """The text with each run of control characters as one space, stripped."""
    if _CONTROLS.search(text) is None:
        return text.strip()
    if _CONTROLS.search(text.replace("\t", " ")) is not None:
        defects.add(Defect.HEADER_CONTROL_CHARACTER)
    return _CONTROLS.sub(" ", text.replace("\t", " ")).strip()

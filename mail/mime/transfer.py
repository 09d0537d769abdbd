"""Transfer encodings. Damage falls back to what can be decoded, or to the bytes as sent."""

from __future__ import annotations

import binascii
import re

from mail.mime import charsets
from mail.mime.defects import Defect, Defects

_WHITESPACE = b" \t\r\n\x0b\x0c"
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_NOISE = bytes(set(range(256)) - set(_ALPHABET) - set(b"="))
_BASE64_LINE = re.compile(rb"[A-Za-z0-9+/]+={0,2}\Z")
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f]")
_LOOSE_BREAK = re.compile(rb"=[ \t]+\r?\n|=[ \t]*\r(?!\n)")
_STRAY_EQUALS = re.compile(rb"=(?![0-9A-Fa-f]{2}|\r?\n|\Z)")
_MAX_BASE64_PIECES = 1_000

_AS_SENT = frozenset({"", "7bit", "8bit", "binary"})


def decode(content: bytes, encoding: str, defects: Defects, *, charset: str | None = None) -> bytes:
    """Undo a transfer encoding. `charset` says that the content is text, and in which one."""
    if encoding == "base64":
        return _base64(content, defects, charset)
    if encoding == "quoted-printable":
        return _quoted_printable(content, defects)
    if encoding not in _AS_SENT:
        defects.add(Defect.MIME_UNKNOWN_ENCODING)
    return content


def _quoted_printable(content: bytes, defects: Defects) -> bytes:
    if _LOOSE_BREAK.search(content):
        content = _LOOSE_BREAK.sub(b"=\n", content)
    if _STRAY_EQUALS.search(content):
        defects.add(Defect.MIME_BAD_QUOTED_PRINTABLE)
    return binascii.a2b_qp(content)


def _base64(content: bytes, defects: Defects, charset: str | None) -> bytes:
    compact = content.translate(None, _WHITESPACE)
    try:
        return binascii.a2b_base64(compact, strict_mode=True)
    except binascii.Error:
        defects.add(Defect.MIME_BAD_BASE64)
    decoded = _leniently(compact)
    if charset is None or _reads_as_text(decoded, charset):
        return decoded
    return _leading_lines(content)


def _leniently(compact: bytes) -> bytes:
    """Decode all that belongs to the alphabet; padding in the middle begins anew."""
    letters = compact.translate(None, _NOISE)
    pieces = [piece for piece in letters.split(b"=", _MAX_BASE64_PIECES) if piece]
    return b"".join(_piece(piece.replace(b"=", b"")) for piece in pieces)


def _piece(letters: bytes) -> bytes:
    whole = letters[: len(letters) - 1] if len(letters) % 4 == 1 else letters
    return binascii.a2b_base64(whole + b"=" * (-len(whole) % 4))


def _reads_as_text(content: bytes, charset: str) -> bool:
    text, held = charsets.decode(content, charset)
    return held and _CONTROLS.search(text) is None


def _leading_lines(content: bytes) -> bytes:
    """Base64 lines decoded, and what follows them as it stands: a footer, or text never encoded."""
    position = 0
    while position < len(content):
        newline = content.find(b"\n", position)
        end = len(content) if newline < 0 else newline + 1
        line = content[position:end].strip()
        if line and (len(line) % 4 or not _BASE64_LINE.match(line)):
            break
        position = end
    return _leniently(content[:position].translate(None, _WHITESPACE)) + content[position:]

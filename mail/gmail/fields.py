"""Header fields of raw bytes, read so strictly that every reader finds the same ones.

For proofs, not for display: what two readers might take differently is refused. Nothing here is
shared with the code that writes a message, nor with `mail.mime`, which never refuses.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from dataclasses import dataclass

from mail.exceptions import ProfileRefused
from mail.gmail.reasons import Reason

#: All header fields of one message, in bytes and in number.
MAX_HEAD_BYTES = 64 * 1024
MAX_FIELDS = 500

_LINE = re.compile(rb"([!-9;-~]{1,76}):(.*)", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
_WORD = re.compile(r"=\?(?:utf-8|UTF-8)\?([BQ])\?([!->@-~]+)\?=")
_ESCAPED = re.compile(r"=([0-9A-F]{2})")
_Q_TEXT = re.compile(r"(?:[!-<>-~]|=[0-9A-F]{2})+")


@dataclass(frozen=True, slots=True)
class Fields:
    """The header fields of a message in order, names in lower case, values unfolded."""

    entries: tuple[tuple[str, bytes], ...]

    def all(self, name: str) -> tuple[bytes, ...]:
        """Every value under that name (lower case)."""
        return tuple(value for one, value in self.entries if one == name)

    def names(self) -> frozenset[str]:
        """Which names occur."""
        return frozenset(name for name, _ in self.entries)

    def once(self, name: str) -> str | None:
        """The text of a field that may stand once; None where it does not stand.

        ProfileRefused where it stands twice or is no readable text.
        """
        values = self.all(name)
        if len(values) > 1:
            raise ProfileRefused(Reason.HEADER_DUPLICATED, field=_field(name))
        return text_of(values[0], name) if values else None

    def needed(self, name: str) -> str:
        """The text of a field that has to stand exactly once."""
        found = self.once(name)
        if found is None:
            raise ProfileRefused(Reason.HEADER_MISSING, field=_field(name))
        return found


def split(raw: bytes) -> tuple[Fields, bytes]:
    """The fields and the body behind the empty line.

    Lines end with CRLF and nothing else. ProfileRefused where a line is no field, a fold is
    ambiguous, or the end of the header is missing.
    """
    head, separator, body = raw.partition(b"\r\n\r\n")
    if not separator:
        raise ProfileRefused(Reason.TRUNCATED, "the header has no end", field="header")
    if len(head) > MAX_HEAD_BYTES:
        raise ProfileRefused(Reason.RAW_TOO_LARGE, field="header")
    entries: list[tuple[str, bytes]] = []
    for line in head.split(b"\r\n"):
        if b"\r" in line or b"\n" in line or b"\0" in line:
            raise ProfileRefused(Reason.AMBIGUOUS_FOLDING, field="header")
        if line[:1] in (b" ", b"\t"):
            _continue(entries, line)
        else:
            entries.append(_field_of(line))
    if len(entries) > MAX_FIELDS:
        raise ProfileRefused(Reason.RAW_TOO_LARGE, field="header")
    return Fields(tuple((name, value.strip(b" ")) for name, value in entries)), body


def text_of(value: bytes, name: str) -> str:
    """UTF-8 text without control characters; ProfileRefused otherwise."""
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ProfileRefused(Reason.HEADER_MALFORMED, "no UTF-8", field=_field(name)) from error
    if _CONTROL.search(text):
        raise ProfileRefused(Reason.CONTROL_CHARACTER, field=_field(name))
    return text


def decoded(text: str, name: str) -> str:
    """Text with its encoded words decoded (RFC 2047): UTF-8 in B or Q, spelled as writers do.

    ProfileRefused where a word could be read in two ways, or would put in a control character.
    """
    if "=?" not in text:
        return text
    pieces: list[str] = []
    run: list[bytes] = []
    for word in text.split(" "):
        match = _WORD.fullmatch(word)
        if match is not None:
            run.append(_content(match[1], match[2], name))
            continue
        if "=?" in word or (run and not word):  # two spaces between words: shown, or left out
            raise ProfileRefused(Reason.HEADER_MALFORMED, "a damaged word", field=_field(name))
        _flush(run, pieces, name)
        pieces.append(word)
    _flush(run, pieces, name)
    return " ".join(pieces)


def _continue(entries: list[tuple[str, bytes]], line: bytes) -> None:
    if not entries or not line.strip(b" \t"):
        raise ProfileRefused(Reason.AMBIGUOUS_FOLDING, field="header")
    name, value = entries[-1]
    entries[-1] = (name, value + line)


def _field_of(line: bytes) -> tuple[str, bytes]:
    match = _LINE.fullmatch(line)
    if match is None:
        raise ProfileRefused(Reason.HEADER_MALFORMED, "a line that is none", field="header")
    return match[1].decode("ascii").lower(), match[2]


def _content(encoding: str, text: str, name: str) -> bytes:
    """The bytes of one encoded word; only the one spelling that encodes them so counts."""
    if encoding == "B":
        content = strict_base64(text.encode("ascii"))
        if content is not None:
            return content
    elif _Q_TEXT.fullmatch(text):
        spaced = text.replace("_", " ")
        return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), spaced).encode("latin-1")
    raise ProfileRefused(Reason.HEADER_MALFORMED, "a damaged word", field=_field(name))


def _flush(run: list[bytes], pieces: list[str], name: str) -> None:
    """Words side by side are one text: the space between them belongs to the encoding."""
    if run:
        pieces.append(text_of(b"".join(run), name))
        run.clear()


def strict_base64(text: bytes) -> bytes | None:
    """The bytes that have exactly this encoding, padding included; None where none have."""
    try:
        content = b64decode(text, validate=True)
    except ValueError:
        return None
    return content if b64encode(content) == text else None


def _field(name: str) -> str:
    return name.replace("-", "_")

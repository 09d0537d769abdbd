"""From bytes to text: the declared charset where it holds, a guess that loses nothing where not.

A byte that fits nowhere becomes the character of Windows-1252 (or Latin-1) with that number, so
that no text is lost; the result never holds lone surrogates.
"""

from __future__ import annotations

import codecs
import re
from functools import lru_cache

#: Codecs of Python that are no charsets of mail, or cost more than linear time.
_NO_CHARSETS = frozenset(
    {"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "mbcs", "oem"}
)
#: What really is meant where a name is used for its larger sibling.
_LARGER = {
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "euc-kr": "cp949",
    "ks-c-5601-1987": "cp949",
    "ks-c-5601": "cp949",
    "shift-jis": "cp932",
    "iso2022-jp": "iso2022-jp-ext",
    "big5": "big5hkscs",
    "ascii": "utf-8",
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+\-]{0,39}")
_FALLBACK = "countersign-single-bytes"
#: Beyond this many bytes that do not decode, the declared charset is not what was meant.
_MAX_STRAY_BYTES = 1_000


def _single_bytes(error: UnicodeError) -> tuple[str, int]:
    """Codec error handler: each byte that does not decode becomes one character."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    characters = []
    for byte in error.object[error.start : error.end]:
        one = bytes([byte])
        try:
            characters.append(one.decode("cp1252"))
        except UnicodeDecodeError:
            characters.append(one.decode("latin-1"))
    return "".join(characters), error.end


codecs.register_error(_FALLBACK, _single_bytes)


@lru_cache(maxsize=512)
def known(charset: str) -> str | None:
    """The codec's own name (`utf-8`, `iso8859-1`), or None where mail has no such charset."""
    name = charset.strip().strip("\"'").lower()
    if not _NAME.fullmatch(name) or "\0" in name:
        return None
    try:
        codec = codecs.lookup(name)
    except (LookupError, ValueError):
        return None
    canonical = codec.name.replace("_", "-")
    if canonical in _NO_CHARSETS or not codec._is_text_encoding:
        return None
    return canonical


def _strictly(content: bytes, charset: str) -> str | None:
    try:
        return content.decode(charset)
    except (UnicodeError, ValueError):
        return None


def decode(content: bytes, charset: str) -> tuple[str, bool]:
    """Decode; the second value says whether the declared charset held.

    `charset` empty means nothing was declared: UTF-8 is tried first.
    """
    name = known(charset) if charset else "utf-8"
    candidates = [name, _LARGER.get(name)] if name else []
    for position, candidate in enumerate([*candidates, "utf-8"]):
        text = _strictly(content, candidate) if candidate else None
        if text is not None:
            return clean(text), position < len(candidates)
    return clean(_byte_by_byte(content, name or "utf-8")), False


def _byte_by_byte(content: bytes, charset: str) -> str:
    """Decode what decodes; the rest one character a byte, or all as Latin-1."""
    try:
        if content.decode(charset, "replace").count("\ufffd") <= _MAX_STRAY_BYTES:
            return content.decode(charset, _FALLBACK)
    except (UnicodeError, ValueError):  # a codec that does not ask its error handler
        pass
    return content.decode("latin-1")


def clean(text: str) -> str:
    """The text without lone surrogates (some codecs make them) and without a byte order mark."""
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.removeprefix("\ufeff")

"""New text apart from quotes of earlier mail and from mail signatures.

What counts as executable text is decided with this, so it errs on the side of cutting: quoted lines
(`>`) go wherever they stand, and all that follows an attribution ("On …, … wrote:"), the header
of a forwarded or answered mail, or the signature line `-- `. Attributions are known in many
languages by mail-parser-reply; its patterns see a few short lines at a time, so that hostile text
costs nothing.
"""

from __future__ import annotations

import re
from functools import cache

from mail.mime.limits import MAX_QUOTE_CANDIDATES

_LANGUAGES = ["en", "cs", "da", "de", "es", "fr", "it", "ja", "nl", "no", "pl", "sv", "zh"]
#: Longer lines attribute nothing, and the patterns cost more than linear time on them.
_MAX_LINE = 160
_SIGNATURE = ("--", "-- ")
_FROM = re.compile(
    r"[* ]*(?:From|Von|De|Da|Van|Od|Fra|Från|От|发件人|寄件者|差出人)\s?:", re.IGNORECASE
)
_BANNER = re.compile(
    r"(?:-{4,}|_{4,})\s?(?:Original Message|Forwarded message|Ursprüngliche Nachricht"
    r"|Weitergeleitete Nachricht|Message d'origine|Message original|Mensaje original)\b"
    r"|Begin forwarded message:",
    re.IGNORECASE,
)
_RULE = re.compile(r"_{20,}\s*\Z")


def split_reply(text: str) -> tuple[str, str]:
    """The new text and the quoted rest, both with LF line ends. Never raises."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    end = _earlier_mail(lines)
    new = [line for line in lines[:end] if not line.startswith(">")]
    rest = [line for line in lines[:end] if line.startswith(">")] + lines[end:]
    return "\n".join(new).strip("\n"), "\n".join(rest).strip("\n")


def new_text(text: str | None) -> str | None:
    """The text without quotes and without the signature; None where nothing is left."""
    if text is None:
        return None
    lines = split_reply(text)[0].split("\n")
    for number, line in enumerate(lines):
        if line in _SIGNATURE:
            lines = lines[:number]
            break
    return "\n".join(lines).strip() or None


def _earlier_mail(lines: list[str]) -> int:
    """The number of the line where an earlier mail begins; one past the last where none does."""
    looked = 0
    for number, line in enumerate(lines):
        bare = line.strip()
        if _BANNER.match(bare):
            return number
        if looked >= MAX_QUOTE_CANDIDATES or len(bare) > _MAX_LINE:
            continue
        start = None
        if bare.endswith(":"):
            looked += 1
            start = _attribution(lines, number)
        elif _FROM.match(bare):
            looked += 1
            start = _header_block(lines, number)
        if start is not None:
            return start
    return len(lines)


def _attribution(lines: list[str], number: int) -> int | None:
    """Where an attribution that ends on this line begins; clients fold it over three lines."""
    for first in range(number, max(-1, number - 3), -1):
        if not 0 < len(lines[first].strip()) <= _MAX_LINE:
            return None
        window = _window(lines[first : number + 1])
        match = _headers().search(window)
        if match is not None and match.start() == 0 and match.end() == len(window):
            return first
    return None


def _header_block(lines: list[str], number: int) -> int | None:
    match = _headers().search(_window(lines[number : number + 4]))
    if match is None or match.start() != 0:
        return None
    above = number
    while above and not lines[above - 1].strip():
        above -= 1
    return above - 1 if above and _RULE.match(lines[above - 1].strip()) else number


def _window(lines: list[str]) -> str:
    return "\n".join(line.strip()[:_MAX_LINE] for line in lines)


@cache
def _headers() -> re.Pattern[str]:
    from mailparser_reply.parser import EmailMessage

    return EmailMessage(text="", languages=list(_LANGUAGES)).HEADER_REGEX

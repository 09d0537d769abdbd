"""New text apart from quotes of earlier mail and from mail signatures.

What counts as executable text is decided with this, so it errs on the side of cutting: quoted lines
(`>`) go wherever they stand; an attribution ("On …, … wrote:") goes with the quoted lines below it,
and with everything below it where none is marked; so does all that follows the header of a
forwarded or answered mail, or the signature line `-- `. Attributions are known in many languages by
mail-parser-reply; its patterns see a few short lines at a time, so that hostile text costs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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
#: Who wrote, or who and when: enough for an attribution where quoted lines follow at once.
_AUTHOR = re.compile(
    r"\b(?:wrote|writes|said|schrieb|schreibt|écrit|escribió|escreveu|scritto|schreef|skrev|napisał"
    r"|napisał\(a\))\s*:\Z|\b[0-9]{1,4}[-./:][0-9]{1,2}\b.*@|@.*\b[0-9]{1,4}[-./:][0-9]{1,2}\b",
    re.IGNORECASE,
)


def split_reply(text: str) -> tuple[str, str]:
    """The new text and the quoted rest, both with LF line ends. Never raises."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    new: list[str] = []
    rest: list[str] = []
    position = 0
    for start, end in [*_earlier_mails(lines), (len(lines), len(lines))]:
        for line in lines[position:start]:
            (rest if line.startswith(">") else new).append(line)
        rest += lines[start:end]
        position = end
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


def _earlier_mails(lines: list[str]) -> Iterator[tuple[int, int]]:
    """Where each earlier mail begins, its attribution included, and where it ends."""
    looked = free = 0
    for number, line in enumerate(lines):
        bare = line.strip()
        if number < free or line.startswith(">"):
            continue
        end = None
        start = number if _BANNER.match(bare) else None
        if start is None and (looked >= MAX_QUOTE_CANDIDATES or len(bare) > _MAX_LINE):
            continue
        if start is None and bare.endswith(":"):
            looked += 1
            end = _end_of_marked(lines, number + 1)
            start = _attribution(lines, number, free)
            if start is None and end is not None and _AUTHOR.search(bare):
                start = number
        elif start is None and _FROM.match(bare):
            looked += 1
            start = _header_block(lines, number)
        if start is not None:
            free = len(lines) if end is None else end
            yield start, free


def _end_of_marked(lines: list[str], number: int) -> int | None:
    """Where a run of lines marked with `>` ends; None where what begins here is not marked."""
    end = None
    for place in range(number, len(lines)):
        if lines[place].startswith(">"):
            end = place + 1
        elif lines[place].strip():
            break
    return end


def _attribution(lines: list[str], number: int, free: int) -> int | None:
    """Where an attribution that ends on this line begins; clients fold it over three lines."""
    for first in range(number, max(free - 1, number - 3), -1):
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

"""Characters that nobody sees, or that turn the text around them: written out, they act no more."""

from __future__ import annotations

import unicodedata

#: Unicode categories of characters that nobody sees.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
#: Letters, marks and symbols that nobody sees: fillers, joiners and variation selectors.
_BLANK = frozenset(
    [*"\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"]
    + [chr(code) for code in (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))]
)


def visible(text: str) -> str:
    """One line in which nothing acts: controls and invisible characters are written out."""
    return "".join(map(written_out, text))


def written_out(one: str) -> str:
    """One character, or its number where nobody would see it."""
    if one == "\t":
        return "    "
    return f"\\u{{{ord(one):x}}}" if is_unseen(one) else one


def is_unseen(one: str) -> bool:
    """Whether nobody would see this character. A line break counts too."""
    return one in _BLANK or unicodedata.category(one) in _HIDDEN

"""Glob patterns over addresses, with the semantics of Go's `path.Match` (DES-019).

`*` is any run of characters but `/`, `?` one character but `/`, `[set]` one character of a set
(`^` negates it, `a-z` is a range), and a backslash takes the next character as it is. The pattern
covers the whole address. Matching ignores case and is linear in the address: all places where the
pattern may stand are kept in the bits of one number, so that nothing ever backtracks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from string import ascii_lowercase, digits

from guards.exceptions import InvalidInput

_META = frozenset("*?[")
_SEPARATOR = "/"
_COMMON = ascii_lowercase + digits + "@.-_+="


def is_pattern(text: str) -> bool:
    """Whether an address-book entry is a pattern: it holds `*`, `?` or `[`."""
    return not _META.isdisjoint(text)


def validate(pattern: str) -> None:
    """Refuse a malformed pattern when it is entered, not when it is looked up."""
    _compile(pattern.lower())


def matches(pattern: str, address: str) -> bool:
    """Whether the whole address fits the pattern. InvalidInput for a malformed pattern."""
    return _compile(pattern.lower()).fits(address.lower())


@dataclass(frozen=True, slots=True)
class _One:
    """One character: of the ranges, or (negated) of none of them."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool = False

    def accepts(self, character: str) -> bool:
        """Whether this character fits."""
        inside = any(low <= character <= high for low, high in self.ranges)
        return inside is not self.negated


_ANY = _One(((_SEPARATOR, _SEPARATOR),), negated=True)


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A pattern as tokens (None is a star, never two in a row); bit n of a number is token n.

    `accepting` holds, for each common character, the tokens that take it.
    """

    tokens: tuple[_One | None, ...]
    stars: int
    accepting: Mapping[str, int]

    def fits(self, text: str) -> bool:
        """Walk the text once; `places` are the tokens that may come next."""
        places = self._past_stars(1)
        for character in text:
            staying = places & self.stars if character != _SEPARATOR else 0
            taking = self.accepting.get(character)
            if taking is None:
                taking = _accepting(self.tokens, character)
            moving = (places & taking) << 1
            places = self._past_stars(staying | moving)
            if not places:
                return False
        return bool(places >> len(self.tokens) & 1)

    def _past_stars(self, places: int) -> int:
        return places | (places & self.stars) << 1


def _accepting(tokens: Sequence[_One | None], character: str) -> int:
    return sum(
        1 << number
        for number, token in enumerate(tokens)
        if token is not None and token.accepts(character)
    )


@lru_cache(maxsize=1024)
def _compile(pattern: str) -> _Compiled:
    tokens: list[_One | None] = []
    at = 0
    while at < len(pattern):
        token, at = _read_token(pattern, at)
        if token is not None or not tokens or tokens[-1] is not None:
            tokens.append(token)
    stars = sum(1 << number for number, token in enumerate(tokens) if token is None)
    accepting = {character: _accepting(tokens, character) for character in _COMMON}
    return _Compiled(tuple(tokens), stars, accepting)


def _read_token(pattern: str, at: int) -> tuple[_One | None, int]:
    """The token that begins here, and where the next one begins."""
    character = pattern[at]
    if character == "*":
        return None, at + 1
    if character == "?":
        return _ANY, at + 1
    if character == "[":
        return _read_set(pattern, at + 1)
    if character == "\\":
        at += 1
        character = _at(pattern, at)
    return _One(((character, character),)), at + 1


def _read_set(pattern: str, at: int) -> tuple[_One, int]:
    """Read the inside of `[…]`; the index returned is behind the closing bracket."""
    negated = pattern[at : at + 1] == "^"
    at += negated
    ranges: list[tuple[str, str]] = []
    while not (ranges and pattern[at : at + 1] == "]"):
        low, at = _read_bound(pattern, at)
        high = low
        if _at(pattern, at) == "-":
            high, at = _read_bound(pattern, at + 1)
        ranges.append((low, high))
    return _One(tuple(ranges), negated), at + 1


def _read_bound(pattern: str, at: int) -> tuple[str, int]:
    character = _at(pattern, at)
    if character in "-]":
        raise _malformed(pattern, f"{character!r} stands where a character of the set should be")
    if character == "\\":
        at += 1
        character = _at(pattern, at)
    return character, at + 1


def _at(pattern: str, at: int) -> str:
    if at >= len(pattern):
        raise _malformed(pattern, "it ends inside a set or behind a backslash")
    return pattern[at]


def _malformed(pattern: str, reason: str) -> InvalidInput:
    return InvalidInput(f"invalid pattern syntax: {pattern!r}: {reason}", field="address")

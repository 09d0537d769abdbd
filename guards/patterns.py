"""Glob patterns over addresses, with the semantics of Go's `path.Match` (DES-019).

`*` is any run of characters but `/`, `?` one character but `/`, `[set]` one character of a set
(`^` negates it, `a-z` is a range), and a backslash takes the next character as it is. The pattern
covers the whole address. Matching ignores case and never backtracks past the last star, so that its
cost is bounded by the product of both lengths, whatever the pattern.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from guards.exceptions import InvalidInput

_META = frozenset("*?[")
_SEPARATOR = "/"


def is_pattern(text: str) -> bool:
    """Whether an address-book entry is a pattern: it holds `*`, `?` or `[`."""
    return not _META.isdisjoint(text)


def validate(pattern: str) -> None:
    """Refuse a malformed pattern when it is entered, not when it is looked up."""
    _compile(pattern.lower())


def matches(pattern: str, address: str) -> bool:
    """Whether the whole address fits the pattern. InvalidInput for a malformed pattern."""
    return _run(_compile(pattern.lower()), address.lower())


@dataclass(frozen=True, slots=True)
class _Star:
    """Any run of characters but the separator."""


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
_STAR = _Star()
_Token = _Star | _One


def _run(tokens: Sequence[_Token], text: str) -> bool:
    """Walk text and tokens together; on a mismatch, let the last star take one character more."""
    at = token = 0
    star = -1
    resume = 0
    while at < len(text):
        current = tokens[token] if token < len(tokens) else None
        if isinstance(current, _Star):
            star, resume, token = token, at, token + 1
        elif current is not None and current.accepts(text[at]):
            at, token = at + 1, token + 1
        elif star >= 0 and text[resume] != _SEPARATOR:
            resume += 1
            at, token = resume, star + 1
        else:
            return False
    return all(isinstance(rest, _Star) for rest in tokens[token:])


def _compile(pattern: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == "[":
            one, at = _read_set(pattern, at + 1)
            tokens.append(one)
            continue
        if character == "*":
            if not (tokens and isinstance(tokens[-1], _Star)):
                tokens.append(_STAR)
        elif character == "?":
            tokens.append(_ANY)
        else:
            if character == "\\":
                at += 1
                character = _at(pattern, at)
            tokens.append(_One(((character, character),)))
        at += 1
    return tokens


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

"""A secret in memory: it prints as dots, and only `reveal` gives it out."""

from __future__ import annotations

import hmac
from typing import NoReturn


class Secret:
    """A resolved secret. Keep it no longer than the call that needs it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the one place that needs it."""
        return self._text

    def __str__(self) -> str:
        return "•••"

    def __repr__(self) -> str:
        return "Secret(•••)"

    def __format__(self, format_spec: str) -> str:
        return format(str(self), format_spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(), other._text.encode())

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled: pass its reference on")

"""Hostile text as every database takes it: PostgreSQL refuses NUL and lone surrogates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from guards.exceptions import InvalidInput


def text(value: str, *, length: int | None = None) -> str:
    """The text with what cannot be stored replaced, cut to `length` characters."""
    cleaned = value.replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return cleaned.encode("utf-8", "replace").decode("utf-8")[:length]


def line(value: str, *, field: str, most: int) -> str:
    """A name or label as a person typed it; InvalidInput for one that is too long or has breaks."""
    typed = value.strip()
    if len(typed) > most:
        raise InvalidInput(f"{field} has at most {most} characters", field=field)
    if not typed.isprintable():
        raise InvalidInput(f"{field} is one line of plain text", field=field)
    return typed


def document(value: object) -> object:
    """A JSON value, its texts cleaned; what JSON does not know becomes text."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Mapping):
        return {text(str(key)): document(item) for key, item in value.items()}
    if isinstance(value, Sequence | frozenset | set):
        return [document(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float) else str(value)

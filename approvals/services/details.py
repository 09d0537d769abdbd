"""What people and the other side said, in a form that every database takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from guards.exceptions import InvalidInput

#: A reply of a server is shown up to here.
_LONGEST = 1_000


def reason_of(given: str, *, otherwise: str) -> str:
    """A person's reason, in a form that every database takes; InvalidInput (`reason`) for none.

    `otherwise` says what one is needed for.
    """
    reason = _clean(given).strip()
    if not reason:
        raise InvalidInput(otherwise, field="reason")
    return reason


def storable(detail: Mapping[str, object]) -> dict[str, Any]:
    """JSON without NUL and lone surrogates (PostgreSQL refuses both), long texts cut."""
    return {_text(str(key)): _value(value) for key, value in detail.items()}


def _value(value: object) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return storable(value)
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes):
        return [_value(item) for item in value]
    return _text(value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value))


def _text(text: str) -> str:
    return _clean(text[:_LONGEST])


def _clean(text: str) -> str:
    cleaned = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return cleaned.encode("utf-8", "replace").decode()

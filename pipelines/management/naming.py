"""An id as people type it: whole, or its beginning."""

from __future__ import annotations

from uuid import UUID

from guards.fronts.commands import wrong_use

_HEX = frozenset("0123456789abcdef")
_LEAST_DIGITS, _DIGITS = 4, 32


def ids_from(named: str) -> tuple[UUID, UUID]:
    """The least and the greatest id that begins as typed; exit 2 for what begins none."""
    typed = named.strip().lower()
    try:
        return UUID(typed), UUID(typed)
    except ValueError:
        digits = typed.replace("-", "")
        if not _LEAST_DIGITS <= len(digits) <= _DIGITS or set(digits) - _HEX:
            raise wrong_use(f"{named!r} is neither an id nor the start of one") from None
    return UUID(digits.ljust(_DIGITS, "0")), UUID(digits.ljust(_DIGITS, "f"))

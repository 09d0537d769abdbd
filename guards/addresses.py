"""Mail addresses as the address book keeps them: one plain addr-spec, lower-case."""

from __future__ import annotations

import re

from guards.exceptions import InvalidInput

#: RFC 5321's limit of a path, in characters.
MAX_LENGTH = 254

_FORBIDDEN = re.compile(r"[\s\x00-\x1f\x7f<>(),;:\"]")


def fold(address: str) -> str:
    """The form in which two spellings of one address are equal."""
    return address.strip().lower()


def normalise(text: str, *, field: str = "address") -> str:
    """Read one address or pattern as it was typed; InvalidInput says what is wrong with it."""
    address = fold(text)
    if not address:
        raise InvalidInput("an address is needed", field=field)
    if len(address) > MAX_LENGTH:
        raise InvalidInput(f"an address has at most {MAX_LENGTH} characters", field=field)
    if _FORBIDDEN.search(address) or not address.isprintable():
        raise InvalidInput(
            f"{address!r} is not one plain address: write name@domain, without a name or brackets",
            field=field,
        )
    return address


def normalise_exact(text: str, *, field: str = "address") -> str:
    """Read one address that stands for itself: a local part, an @, a domain."""
    address = normalise(text, field=field)
    local, at, domain = address.rpartition("@")
    if not (local and at and domain):
        raise InvalidInput(f"{address!r} has no local part, @ and domain", field=field)
    return address

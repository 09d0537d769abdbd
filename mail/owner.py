"""The owner, as mail knows him: his address and the key that he reads and signs with.

Both come from settings and files, never from the database, and are read at every call, so that a
key that was replaced, revoked or outlived counts at once for nothing.
"""

from __future__ import annotations

from django.conf import settings

from guards import documents
from guards.exceptions import InvalidInput
from guards.types import Pin
from mail import compose


def address() -> str:
    """OWNER_EMAIL; empty where there is none, or it is not one plain address."""
    try:
        return compose.plain_address(settings.OWNER_EMAIL.strip(), "OWNER_EMAIL")
    except InvalidInput:
        return ""


def is_owner(sender: str | None) -> bool:
    """Whether a From address is the owner's; case does not matter."""
    own = address().lower()
    return bool(own) and (sender or "").lower() == own


def pin() -> Pin:
    """The owner's key, pinned to his address alone. NoOwnerKey, OwnerKeyInvalid."""
    key = documents.owner_key()
    return Pin(frozenset({address().lower()}), key.fingerprint, key.public_key, "owner")

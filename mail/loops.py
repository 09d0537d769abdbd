"""The loop guard: which mail is never answered automatically, and by which of its marks.

Read from headers that programs set, never from guesses: a subject that sounds automatic, or a lone
`X-Auto-Response-Suppress`, is a person's mail. The rate limit is the outbound service's.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from mail.types import LoopReason, ParsedMessage

__all__ = ["LoopReason", "reason"]

_BULK = frozenset({"bulk", "list", "junk"})
_COMMENT = re.compile(r"\([^()]*\)")
_ROBOTS = frozenset({"mailer-daemon", "postmaster"})
#: Set on everything we send: the identity that sent it.
OWN_MARK = "x-beadle-agent"


def reason(
    message: ParsedMessage,
    *,
    own_addresses: frozenset[str] = frozenset(),
    is_own_message_id: Callable[[str], bool] | None = None,
) -> LoopReason | None:
    """Why a message must not be answered automatically; the first reason of the closed list.

    `own_addresses` are the addresses of our identities; `is_own_message_id` tells mail that we sent
    and that came back under another name.
    """
    if any(_first_word(value) != "no" for value in _values(message, "auto-submitted")):
        return LoopReason.AUTO_SUBMITTED
    if any(_first_word(value) in _BULK for value in _values(message, "precedence")):
        return LoopReason.BULK
    if _values(message, "list-id"):
        return LoopReason.LIST
    if _is_bounce(message):
        return LoopReason.BOUNCE
    if _is_own(message, own_addresses, is_own_message_id):
        return LoopReason.OWN_ADDRESS
    return LoopReason.NO_IDENTITY if message.sender is None else None


def _values(message: ParsedMessage, name: str) -> list[str]:
    return [value for header, value in message.headers if header == name]


def _first_word(value: str) -> str:
    """The value's first word in lower case: without comments, before any parameter."""
    words = _COMMENT.sub(" ", value).replace(";", " ").replace("(", " ").split()
    return words[0].lower() if words else ""


def _is_bounce(message: ParsedMessage) -> bool:
    if any(_first_word(value) == "multipart/report" for value in _values(message, "content-type")):
        return True  # even where it was cut off and could not be read as one
    if any("".join(value.split()) == "<>" for value in _values(message, "return-path")):
        return True
    senders = [address.address.rpartition("@")[0] for address in message.from_all]
    senders += [_COMMENT.sub(" ", value).strip() for value in _values(message, "from")]
    return any(sender.lower() in _ROBOTS for sender in senders)


def _is_own(
    message: ParsedMessage,
    own_addresses: frozenset[str],
    is_own_message_id: Callable[[str], bool] | None,
) -> bool:
    own = {address.lower() for address in own_addresses}
    if any(address.address.lower() in own for address in message.from_all):
        return True
    if any(value.strip().lower() in own for value in _values(message, OWN_MARK)):
        return True
    return bool(message.message_id and is_own_message_id and is_own_message_id(message.message_id))

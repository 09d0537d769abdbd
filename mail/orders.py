"""An order in a mail: one verb and one digest, or nothing. Pure.

What a person writes to answer what waits: `approve DIGEST`, `reject DIGEST and why`. An order is
all that the new text says, so that no sentence around it, no second order and no half of a quoted
one can turn it into something else. Whatever is not exactly that is a fault with a name, never a
guess.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mail import quotes
from mail.types import OrderFault, Verb

#: The longest reason that is kept, in characters.
MAX_REASON = 500

_DIGEST = re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{64}(?![0-9A-Za-z])", re.IGNORECASE)
_ORDER = re.compile(
    rf"(?<![0-9A-Za-z])({'|'.join(Verb)})\W{{1,8}}([0-9a-f]{{64}})(?![0-9A-Za-z])", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be done about the one thing that has this digest (64 lower-case hex)."""

    verb: Verb
    digest: str
    reason: str = ""


def read(text: str | None) -> Order | OrderFault:
    """The one order that a text consists of, without its quotes and its signature.

    Line breaks mean nothing: mail programs put them anywhere. `approve` stands alone with its
    digest; the other verbs may be followed by words, which are the reason.
    """
    words = (quotes.new_text(text) or "").split()
    said = " ".join(words)
    orders = _ORDER.findall(said)
    if not orders:
        return OrderFault.NO_ORDER
    if len(orders) > 1 or len(_DIGEST.findall(said)) > 1:
        return OrderFault.SEVERAL_ORDERS
    verb, digest = words[0].lower(), words[1].lower() if len(words) > 1 else ""
    if verb not in set(Verb) or not _DIGEST.fullmatch(digest):
        return OrderFault.UNCLEAR_ORDER
    if verb == Verb.APPROVE and len(words) > 2:
        return OrderFault.UNCLEAR_ORDER
    return Order(Verb(verb), digest, " ".join(words[2:])[:MAX_REASON])


def mentioned(subject: str, *texts: str | None) -> bool:
    """Whether a mail speaks of an order at all, outside of its quotes: then it is never work."""
    return any(
        _ORDER.search(said) is not None
        for said in (subject, *(quotes.new_text(text) for text in texts if _may_hold(text)))
        if said
    )


def digest_mentioned(subject: str, *texts: str | None) -> str:
    """The digest of the first order that a mail speaks of, quotes aside; empty where there is none.

    For telling the person what was not done: never for doing it.
    """
    said = (subject, *(quotes.new_text(text) for text in texts if _may_hold(text)))
    found = next((match for one in said if one and (match := _ORDER.search(one))), None)
    return found[2].lower() if found else ""


def _may_hold(text: str | None) -> bool:
    """A cheap look first: cutting quotes costs more, and hardly any mail holds a digest."""
    return bool(text) and _DIGEST.search(text or "") is not None

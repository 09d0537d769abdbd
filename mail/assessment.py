"""What the system makes of one message: trust, permission, decision, and the text that may execute.

Pure but for the verifier. `explain`, ingest, and stage 0 of a pipeline call the same function, so
that all three give the same answer for the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from guards import trust
from guards.openpgp import Verifier
from guards.services import decisions
from guards.types import (
    LEVELS_THAT_EXECUTE,
    Action,
    Judgement,
    Pin,
    Rule,
    Rwx,
    TrustLevel,
    TrustVerdict,
    Verdict,
)
from mail import loops, orders, quotes
from mail.types import LoopReason, ParsedMessage, ParsedPart


@dataclass(frozen=True, slots=True)
class Viewpoint:
    """For whom a message is judged.

    `identity_id` and `email` are None where no identity is meant; then nothing has to be bound.
    `binding` says that verified mail must name this identity in its signed part; `own_addresses`
    are those of all our identities, for the loop guard.
    """

    identity_id: int | None
    email: str | None
    handle: str | None
    binding: bool
    own_addresses: frozenset[str]


@dataclass(frozen=True, slots=True)
class Assessment:
    """The answer: all of it is evidence of one Decision.

    `replay_key` is empty for mail that may not execute. `executable_text` is None for those, too.
    `is_answer`: it speaks of an order about something that waits, and so it is never work.
    """

    trust: TrustVerdict
    permission: Rwx
    judgement: Judgement
    executable_text: str | None
    loop: LoopReason | None
    replay_key: str
    is_answer: bool = False


def assess(
    parsed: ParsedMessage,
    *,
    viewpoint: Viewpoint,
    pins: Sequence[Pin],
    rwx: Callable[[str | None], Rwx],
    now: datetime,
    received_at: datetime,
    verifier: Verifier,
    max_age: timedelta,
    not_before: datetime | None = None,
    first_pass: bool = False,
    replayed: Callable[[str], bool] | None = None,
    is_own_message_id: Callable[[str], bool] | None = None,
) -> Assessment:
    """Judge a parsed message (guards.md *Deciding*, *Execution*).

    `replayed` answers whether a replay key has started a pipeline; without it none has.
    `received_at` is the server's INTERNALDATE, which dates trusted mail.
    """
    verdict = trust.classify(parsed.facts, pins, now, verifier)
    sender = parsed.facts.sender
    permission = rwx(sender)
    text = executable_text(parsed, verdict.level)
    loop = loops.reason(
        parsed, own_addresses=viewpoint.own_addresses, is_own_message_id=is_own_message_id
    )
    key = trust.replay_key(
        facts=parsed.facts,
        verdict=verdict,
        message_id=parsed.message_id,
        text=text,
    )
    judgement = decisions.decide_message(
        sender=sender,
        permission=permission,
        trust=verdict,
        loop=loop,
        has_text=text is not None,
        bound=_is_bound(parsed, verdict.level, viewpoint),
        too_old=_is_too_old(verdict, now, received_at, max_age, not_before),
        replayed=bool(key and replayed and replayed(key)),
        first_pass=first_pass,
    )
    made = Assessment(verdict, permission, judgement, text, loop, key)
    return (
        as_answer(made)
        if orders.mentioned(parsed.subject, parsed.text, parsed.signed_text)
        else made
    )


def as_answer(made: Assessment) -> Assessment:
    """The same for mail that answers what waits: whoever sent it, it starts nothing."""
    judged = made.judgement
    if judged.action is Action.EXECUTE and made.trust.level in LEVELS_THAT_EXECUTE:
        judged = Judgement(Action.SURFACE, Verdict.ALLOW, Rule.OWNER_ANSWER, judged.evidence)
    return replace(made, judgement=judged, is_answer=True)


def executable_text(parsed: ParsedMessage, level: TrustLevel) -> str | None:
    """The text from which work may be planned; None below trusted, and where nothing is left.

    Verified: the signed part's own text/plain. Trusted: Subject, a blank line, the text/plain.
    Quotes of earlier mail and the mail signature are cut off; HTML is never executed.
    """
    if level is TrustLevel.VERIFIED:
        return quotes.new_text(parsed.signed_text)
    if level is not TrustLevel.TRUSTED or _plain_part(parsed) is None:
        return None
    text = quotes.new_text(parsed.text)
    if text is None or not parsed.subject:
        return text
    return f"{parsed.subject}\n\n{text}"


def _plain_part(parsed: ParsedMessage) -> ParsedPart | None:
    return next((part for part in parsed.parts if part.is_text), None)


def _is_bound(parsed: ParsedMessage, level: TrustLevel, viewpoint: Viewpoint) -> bool:
    """Whether verified mail names this identity; trusted mail came to its mailbox alone."""
    if level is not TrustLevel.VERIFIED or not viewpoint.binding or viewpoint.email is None:
        return True
    return trust.is_bound(
        signed_text=parsed.signed_text,
        signed_to=parsed.signed_to,
        email=viewpoint.email,
        handle=viewpoint.handle,
    )


def _is_too_old(
    verdict: TrustVerdict,
    now: datetime,
    received_at: datetime,
    max_age: timedelta,
    not_before: datetime | None,
) -> bool:
    """The age of the signature for verified mail, of the arrival for trusted mail."""
    verified = verdict.level is TrustLevel.VERIFIED
    when = verdict.evidence.signed_at if verified else received_at
    return trust.is_too_old(when=when, now=now, max_age=max_age, not_before=not_before)

"""Whose order a mail carries, as far as the mail itself can prove it. Pure but for the verifier.

The owner's key comes from the settings, and no other pin is looked at: an address book that
somebody changed cannot make a yes. Only what stands in the signed plain text is an order; what a
subject, HTML or text beside the signed part say is never one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from guards import trust
from guards.openpgp import Verifier
from guards.types import Pin, TrustLevel, TrustReason, TrustVerdict
from mail import orders, owner
from mail.orders import Order
from mail.types import AnswerReason, OrderFault, ParsedMessage, Verb

#: How old a signature may be that carries an order.
MAX_AGE = timedelta(hours=24)

#: Reasons with which a signature is worse than none.
_SPOILED = frozenset(
    {
        TrustReason.BAD_SIGNATURE,
        TrustReason.EXPIRED_KEY,
        TrustReason.REVOKED_KEY,
        TrustReason.EXPIRED_SIGNATURE,
        TrustReason.WEAK_HASH,
        TrustReason.FUTURE_SIGNATURE,
        TrustReason.SEVERAL_SIGNATURES,
        TrustReason.NO_SIGNATURE_DATA,
        TrustReason.KEY_OF_SOMEONE_ELSE,
        TrustReason.MALFORMED_SIGNED,
    }
)


@dataclass(frozen=True, slots=True)
class Proof:
    """What a mail proves. `refused` is None where `order` may be carried out.

    `witnessed`: we saw the signature of the owner's key over it, just now; else it is only reported
    to be from him. `unavailable`: the signature could not be checked; ask again later.
    """

    refused: AnswerReason | OrderFault | None = None
    order: Order | None = None
    witnessed: bool = False
    signer: str = ""
    signed_at: datetime | None = None
    replay_key: str = ""
    detail: str = ""
    unavailable: bool = False


def prove(
    parsed: ParsedMessage,
    *,
    pin: Pin | None,
    verifier: Verifier,
    now: datetime,
    first_pass: bool,
    partial: bool,
    not_before: datetime | None,
) -> Proof:
    """Read the one order of a mail, and how strongly it is the owner's.

    `pin` is the owner's key for his address, None without one. A yes has to be signed by it. A no,
    `later`, `pause` and `stop` may come without a signature, never with a spoiled one.
    """
    hindrance = _hindrance(parsed, first_pass=first_pass, partial=partial)
    if hindrance is not None:
        return Proof(refused=hindrance)
    verdict = trust.classify(parsed.facts, [pin] if pin else [], now, verifier)
    if verdict.reason is TrustReason.VERIFIER_UNAVAILABLE:
        return Proof(unavailable=True)
    if verdict.reason in _SPOILED:
        return Proof(refused=AnswerReason.BAD_SIGNATURE, detail=str(verdict.reason))
    if pin is not None and _is_signed_by(verdict, pin):
        return _signed(parsed, verdict, now=now, not_before=not_before)
    return _reported(parsed, verdict, has_owner=pin is not None)


def _hindrance(parsed: ParsedMessage, *, first_pass: bool, partial: bool) -> AnswerReason | None:
    if partial or parsed.quarantine is not None:
        return AnswerReason.INCOMPLETE
    if not owner.is_owner(parsed.facts.sender):
        return AnswerReason.NOT_THE_OWNER
    if first_pass:
        return AnswerReason.FIRST_PASS
    return AnswerReason.AUTOMATIC if parsed.loop is not None else None


def _is_signed_by(verdict: TrustVerdict, pin: Pin) -> bool:
    return verdict.level is TrustLevel.VERIFIED and verdict.evidence.signer == pin.fingerprint


def _signed(
    parsed: ParsedMessage, verdict: TrustVerdict, *, now: datetime, not_before: datetime | None
) -> Proof:
    """The order in the text that the owner signed."""
    evidence = verdict.evidence
    key = trust.replay_key(facts=parsed.facts, verdict=verdict, message_id=None, text=None)
    proof = Proof(
        witnessed=True,
        signer=evidence.signer or "",
        signed_at=evidence.signed_at,
        replay_key=key,
    )
    found = orders.read(parsed.signed_text if _is_spoken(parsed, signed=True) else None)
    if found is OrderFault.NO_ORDER and _stands_elsewhere(parsed):
        return replace(proof, refused=AnswerReason.NOT_IN_SIGNED_TEXT)
    if isinstance(found, OrderFault):
        return replace(proof, refused=found)
    if trust.is_too_old(when=evidence.signed_at, now=now, max_age=MAX_AGE, not_before=not_before):
        return replace(proof, refused=AnswerReason.TOO_OLD, order=found)
    return replace(proof, order=found)


def _is_spoken(parsed: ParsedMessage, *, signed: bool) -> bool:
    """Whether the plain text is what the mail itself says: no enclosed file, nor below HTML.

    Mail programs enclose text files inline; where nothing was written, such a file comes first.
    """
    for part in parsed.parts:
        if part.type == "text/html" and part.disposition != "attachment":
            return False
        if part.is_text:
            return part.name is None and (part.is_signed or not signed)
    return False


def _stands_elsewhere(parsed: ParsedMessage) -> bool:
    return orders.mentioned(parsed.subject, parsed.text)


def _reported(parsed: ParsedMessage, verdict: TrustVerdict, *, has_owner: bool) -> Proof:
    """The order in the plain text of a mail that only says it is from the owner: never a yes."""
    found = orders.read(parsed.text if _is_spoken(parsed, signed=False) else None)
    if found is OrderFault.NO_ORDER and _stands_elsewhere(parsed):
        return Proof(refused=AnswerReason.NOT_IN_SIGNED_TEXT, detail=str(verdict.reason))
    if isinstance(found, OrderFault):
        return Proof(refused=found, detail=str(verdict.reason))
    if found.verb is not Verb.APPROVE:
        return Proof(order=found, detail=str(verdict.reason))
    return Proof(refused=_why_no_yes(verdict, has_owner), order=found, detail=str(verdict.reason))


def _why_no_yes(verdict: TrustVerdict, has_owner: bool) -> AnswerReason:
    if not has_owner:
        return AnswerReason.NO_OWNER
    unknown = verdict.reason is TrustReason.UNPINNED_KEY
    return AnswerReason.WRONG_KEY if unknown else AnswerReason.NOT_SIGNED

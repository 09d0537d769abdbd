"""Deciding: one pure table, and the one place that writes its answers down (DES-012)."""

from __future__ import annotations

from collections.abc import Mapping

from guards import storable
from guards.models import Decision
from guards.services.units import unit_of_work
from guards.signals import decided
from guards.types import (
    LEVELS_THAT_EXECUTE,
    NOTHING,
    Action,
    Asker,
    Judgement,
    Rule,
    Rwx,
    Subject,
    TrustVerdict,
    Verdict,
)

_NEED_READ = frozenset({Action.SURFACE, Action.READ, Action.DOWNLOAD})
_NEED_NOTHING = frozenset({Action.DIAGNOSE, Action.MOVE})
_OPERATORS_OWN = frozenset({Action.REVEAL, Action.RELEASE})

#: `Decision.sender` as the table holds it.
_SENDER_LENGTH = 254


def decide_message(
    *,
    sender: str | None,
    permission: Rwx,
    trust: TrustVerdict,
    loop: str | None,
    has_text: bool,
    bound: bool,
    too_old: bool,
    replayed: bool = False,
    first_pass: bool = False,
) -> Judgement:
    """What becomes of an inbound message: started, surfaced or held. Pure; the first rule decides.

    `sender` is the one plain From address, `loop` the reason of the loop guard, `bound` whether the
    signed text names this identity (or need not). With `x` the question is whether it executes,
    whatever `r`; trust and permission must both pass (DES-012).
    """
    evidence = {
        "trust": str(trust.level),
        "reason": str(trust.reason),
        "permission": str(permission),
    }
    if sender is None:
        return Judgement(Action.SURFACE, Verdict.HOLD, Rule.NO_IDENTITY, evidence)
    if permission.execute:
        hindrances = (
            (trust.level not in LEVELS_THAT_EXECUTE, Rule.TRUST_TOO_LOW),
            (loop is not None, Rule.LOOP),
            (not has_text, Rule.NO_TEXT),
            (not bound, Rule.RECIPIENT_NOT_BOUND),
            (too_old, Rule.SIGNATURE_TOO_OLD),
            (replayed, Rule.REPLAYED),
            (first_pass, Rule.FIRST_PASS),
        )
        rule = next((rule for applies, rule in hindrances if applies), None)
        if rule is Rule.LOOP:
            evidence["loop"] = str(loop)
        if rule is not None:
            return Judgement(Action.EXECUTE, Verdict.HOLD, rule, evidence)
        return Judgement(Action.EXECUTE, Verdict.ALLOW, Rule.EXECUTE_PERMITTED, evidence)
    if permission.read:
        return Judgement(Action.SURFACE, Verdict.ALLOW, Rule.READ_PERMITTED, evidence)
    return Judgement(Action.SURFACE, Verdict.HOLD, Rule.NO_PERMISSION, evidence)


def decide_read(*, action: Action, sender: str | None, permission: Rwx) -> Judgement:
    """Whether a message may be seen: `r` to surface, read or download; nothing to diagnose or move.

    What may not be surfaced is held for a person; a read or a download is denied. ValueError for an
    action that is not a way of looking.
    """
    evidence = {"permission": str(permission)}
    if action in _NEED_NOTHING:
        return Judgement(action, Verdict.ALLOW, Rule.OWN_MAILBOX, evidence)
    if action not in _NEED_READ:
        raise ValueError(f"{action} is not decided by read permission")
    refusal = Verdict.HOLD if action is Action.SURFACE else Verdict.DENY
    if sender is None:
        return Judgement(action, refusal, Rule.NO_IDENTITY, evidence)
    if permission.read:
        return Judgement(action, Verdict.ALLOW, Rule.READ_PERMITTED, evidence)
    return Judgement(action, refusal, Rule.NO_PERMISSION, evidence)


def decide_send(*, permissions: Mapping[str, Rwx]) -> Judgement:
    """Whether mail may go to these recipients: `w` for every one of them, and at least one.

    A pipeline's own reply stage does not ask this.
    """
    refused = sorted(address for address, rwx in permissions.items() if not rwx.write)
    if refused or not permissions:
        return Judgement(Action.SEND, Verdict.DENY, Rule.NO_WRITE, {"refused": refused})
    recipients = sorted(permissions)
    return Judgement(Action.SEND, Verdict.ALLOW, Rule.WRITE_PERMITTED, {"recipients": recipients})


def decide_override(*, action: Action, by: Asker) -> Judgement:
    """Whether a held message may be revealed or released: a person may, nobody else."""
    if action not in _OPERATORS_OWN:
        raise ValueError(f"{action} is nothing that an operator overrides")
    if by.kind == "operator":
        return Judgement(action, Verdict.ALLOW, Rule.OPERATOR_OVERRIDE)
    return Judgement(action, Verdict.DENY, Rule.NO_PERMISSION)


def record_decision(
    *,
    judgement: Judgement,
    asker: Asker,
    subject: Subject,
    identity_id: int | None = None,
    sender: str = "",
    permission: Rwx = NOTHING,
) -> Decision:
    """Write one answer down, append-only, and announce it (`decided`). Joins the caller's unit."""
    with unit_of_work():
        decision = Decision.objects.create(
            asker=str(asker),
            action=judgement.action,
            subject_type=subject.type,
            subject_id=subject.id,
            identity_id=identity_id,
            sender=storable.text(sender, length=_SENDER_LENGTH),
            permission=str(permission),
            verdict=judgement.verdict,
            rule=judgement.rule,
            evidence=storable.document(judgement.evidence),
        )
        decided.send(sender=Decision, decision=decision)
    return decision

"""Answers by mail: an order of the owner is carried out once, or refused with a word that says why.

Everything is derived from the raw bytes: nothing that was stored at ingest is believed. The replay
ledger is claimed first, in its own commit, under the answer's own name; then the one service of
approvals is called; then what came of it is recorded. A crash in between is asked again and gets
the same result, since a yes to the same digest has the same effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog
from django.utils import timezone

from approvals import registry
from approvals.exceptions import (
    ApprovalExpired,
    ApprovalSuperseded,
    EffectOutstanding,
    UnknownKind,
)
from approvals.models import Approval, Effect
from approvals.services import approvals, effects, holds, permissions
from approvals.services.people import REPORTED_OWNER, signed_owner
from guards import openpgp
from guards.exceptions import AlreadyDecided, CountersignError
from guards.models import ReplayEntry
from guards.selectors import execute_not_before
from guards.services import decisions, replay
from guards.services.units import unit_of_work
from guards.types import SYSTEM, Action, Asker, Judgement, Pin, Rule, Rwx, Subject, Verdict
from mail import answer_proof, orders, owner, selectors
from mail.answer_proof import Proof
from mail.exceptions import RawMissing
from mail.models import MailedAnswer
from mail.orders import Order
from mail.services import notices, records
from mail.types import AnswerReason, OrderFault, ParsedMessage, Verb
from teams.services.events import append_event

log = structlog.get_logger(__name__)

#: Refusals that nobody is told of by mail: nothing of ours may go round in circles.
_QUIET = frozenset(
    {
        AnswerReason.NOT_THE_OWNER,
        AnswerReason.NO_OWNER,
        AnswerReason.FIRST_PASS,
        AnswerReason.INCOMPLETE,
        AnswerReason.AUTOMATIC,
        AnswerReason.REPLAYED,
    }
)


def settle_due() -> int:
    """Judge what nobody has judged yet; how many answers were settled.

    One that breaks whatever judges it stays due, and holds up no other.
    """
    due = MailedAnswer.objects.filter(state=MailedAnswer.State.DUE).order_by("pk")
    settled = 0
    for pk in list(due.values_list("pk", flat=True)):
        try:
            settled += settle(answer_id=pk)
        except Exception:
            log.exception("mail.answer_not_judged", answer=pk)
    return settled


def settle(*, answer_id: int) -> bool:
    """Carry out one mailed answer, or refuse it; True where it is settled by this call.

    It stays due while its bytes, its signature or the artifact key cannot be looked at.
    """
    answer = (
        MailedAnswer.objects.select_related("message__account__identity")
        .filter(pk=answer_id, state=MailedAnswer.State.DUE)
        .first()
    )
    if answer is None:
        return False
    try:
        parsed = selectors.parsed(answer.message)
        proof = _prove(answer, parsed)
        if proof.unavailable:
            log.warning("mail.answer_stays_due", answer=answer.pk, reason="verifier-unavailable")
            return False
        outcome, approval, detail = _outcome(answer, proof)
    except CountersignError as error:
        if isinstance(error, RawMissing) or not error.permanent:
            log.warning("mail.answer_stays_due", answer=answer.pk, reason=error.code)
            return False
        raise
    said = orders.digest_mentioned(parsed.subject, parsed.text, parsed.signed_text)
    if not _record(answer, proof, outcome, approval, detail, digest=said):
        return False
    _tell(answer, proof, outcome)
    return True


def _prove(answer: MailedAnswer, parsed: ParsedMessage) -> Proof:
    message = answer.message
    return answer_proof.prove(
        parsed,
        pin=_pin(),
        verifier=openpgp.verifier(),
        now=timezone.now(),
        first_pass=answer.first_pass,
        partial=message.truncated or bool(message.quarantine),
        not_before=execute_not_before(),
    )


def _pin() -> Pin | None:
    """The owner's key; None where there is none that counts."""
    try:
        return owner.pin()
    except CountersignError as error:
        if not error.permanent:
            raise
        return None


_Reason = AnswerReason | OrderFault
_Outcome = tuple[_Reason, Approval | None, str]


def _outcome(answer: MailedAnswer, proof: Proof) -> _Outcome:
    """What became of it: reason, the approval that it is about, a sentence of detail."""
    if proof.refused is not None or proof.order is None:
        return proof.refused or OrderFault.NO_ORDER, None, proof.detail
    if proof.witnessed and not _claim(answer, proof.replay_key):
        return AnswerReason.REPLAYED, None, ""
    item = notices.item_of(proof.order.digest)
    if item is None or item.approval is None:
        return _not_shown(proof.order.digest)
    return _carried_out(item.approval, proof.order, _asker(proof))


def _claim(answer: MailedAnswer, key: str) -> bool:
    """Take the replay key for this answer, for good; True again when it is asked anew."""
    subject = Subject("mail.mailed_answer", str(answer.pk))
    with unit_of_work():
        if replay.claim(key=key, subject=subject):
            return True
        return ReplayEntry.objects.filter(
            key=key, subject_type=subject.type, subject_id=subject.id
        ).exists()


def _asker(proof: Proof) -> Asker:
    return signed_owner(proof.signer) if proof.witnessed else REPORTED_OWNER


def _not_shown(digest: str) -> _Outcome:
    """A digest that no notice showed: kinds that only the console answers are named."""
    other = Approval.objects.filter(digest=digest).order_by("-created_at").first()
    if other is not None and not _takes_mail(other.kind):
        label = registry.kind(other.kind).label
        return AnswerReason.ANSWER_ELSEWHERE, other, f"{label} is answered in the console only"
    return AnswerReason.UNKNOWN_DIGEST, None, ""


def _takes_mail(name: str) -> bool:
    try:
        ways = getattr(registry.kind(name), "via", None)
    except UnknownKind:
        return True
    return ways is None or Approval.Via.MAIL in ways


def _carried_out(approval: Approval, order: Order, by: Asker) -> _Outcome:
    try:
        _ACTS[order.verb](approval, order, by)
    except CountersignError as error:
        if not error.permanent:
            raise
        if isinstance(error, AlreadyDecided) and _is_ours(approval, order, by):
            return AnswerReason.DONE, approval, ""
        return _reason_of(error), approval, error.detail
    return AnswerReason.DONE, approval, ""


def _approve(approval: Approval, order: Order, by: Asker) -> None:
    act = permissions.permit if registry.is_permission(approval.kind) else approvals.approve
    act(approval_id=approval.pk, by=by, via=Approval.Via.MAIL, digest=order.digest)


def _reject(approval: Approval, order: Order, by: Asker) -> None:
    approvals.reject(
        approval_id=approval.pk,
        by=by,
        via=Approval.Via.MAIL,
        reason=order.reason or "The owner said no by mail and gave no reason.",
    )


def _later(approval: Approval, order: Order, by: Asker) -> None:
    """Nothing moves: this answer on record is what keeps the next notice back for a day."""


def _pause(approval: Approval, order: Order, by: Asker) -> None:
    if approval.hold_id is not None:
        holds.set_back(hold_id=approval.hold_id, drifted="paused")


def _stop(approval: Approval, order: Order, by: Asker) -> None:
    """Refuse what waits; give up what was allowed and has not begun."""
    effect = Effect.objects.filter(approval=approval).first()
    if effect is None:
        _reject(approval, order, by)
    else:
        effects.cancel(effect_id=effect.pk, by=by, reason=order.reason or "stopped by mail")


_ACTS: Mapping[Verb, Callable[[Approval, Order, Asker], None]] = {
    Verb.APPROVE: _approve,
    Verb.REJECT: _reject,
    Verb.NO: _reject,
    Verb.LATER: _later,
    Verb.PAUSE: _pause,
    Verb.STOP: _stop,
}
_NOES = frozenset({Verb.REJECT, Verb.NO, Verb.STOP})


def _is_ours(approval: Approval, order: Order, by: Asker) -> bool:
    """Whether exactly this was done already, by the same voice: an answer that is asked anew."""
    approval.refresh_from_db()
    mine = (approval.decided_via, approval.decided_by) == (str(Approval.Via.MAIL), str(by))
    return mine and order.verb in _NOES and approval.state == Approval.State.REJECTED


def _reason_of(error: CountersignError) -> AnswerReason:
    if error.rule == "answer-elsewhere":
        return AnswerReason.ANSWER_ELSEWHERE
    for kind, reason in (
        (ApprovalExpired, AnswerReason.EXPIRED),
        (ApprovalSuperseded, AnswerReason.CHANGED),
        (EffectOutstanding, AnswerReason.OUTSTANDING),
        (AlreadyDecided, AnswerReason.ALREADY_DECIDED),
    ):
        if isinstance(error, kind):
            return reason
    return AnswerReason.REFUSED


def _record(
    answer: MailedAnswer,
    proof: Proof,
    reason: _Reason,
    approval: Approval | None,
    detail: str,
    *,
    digest: str,
) -> bool:
    """Settle the row, with one Decision and one event; False where another process was first."""
    done = reason is AnswerReason.DONE
    order = proof.order
    strength = MailedAnswer.Strength
    values = {
        "state": MailedAnswer.State.DONE if done else MailedAnswer.State.REFUSED,
        "strength": strength.WITNESSED if proof.witnessed else strength.REPORTED,
        "verb": str(order.verb) if order else "",
        "digest": order.digest if order else digest,
        "signer": proof.signer,
        "signed_at": proof.signed_at,
        "approval": approval,
        "reason": str(reason),
        "detail": records.storable(detail, 500),
        "settled_at": timezone.now(),
    }
    with unit_of_work():
        moved = MailedAnswer.objects.filter(pk=answer.pk, state=MailedAnswer.State.DUE).update(
            **values
        )
        if not moved:
            return False
        answer.refresh_from_db()
        _decide(answer, _asker(proof) if done or proof.witnessed else SYSTEM)
    return True


def _decide(answer: MailedAnswer, by: Asker) -> None:
    """The device is the key that signed, or unsigned mail; both say whether we saw it ourselves."""
    message = answer.message
    done = answer.state == MailedAnswer.State.DONE
    facts: dict[str, object] = {
        "verb": answer.verb,
        "digest": answer.digest,
        "reason": answer.reason,
        "strength": answer.strength,
        "channel": "mail",
        "device": f"openpgp:{answer.signer}" if answer.signer else "unsigned mail",
        "message_id": message.message_id,
        "approval": str(answer.approval_id) if answer.approval_id else None,
    }
    decisions.record_decision(
        judgement=Judgement(
            Action.ANSWER, Verdict.ALLOW if done else Verdict.DENY, Rule.OWNER_ANSWER, facts
        ),
        asker=by,
        subject=records.subject_of(message),
        identity_id=message.account.identity_id,
        sender=message.sender,
        permission=Rwx.parse(message.permission),
    )
    append_event(
        kind="answer.done" if done else "answer.refused",
        subject=records.subject_of(message),
        actor=str(by),
        facts={**facts, "verb": answer.verb or "an order"},
    )


def _tell(answer: MailedAnswer, proof: Proof, reason: _Reason) -> None:
    """Tell the owner of a refusal, where it is likely that he really wrote.

    That is: his key signed it, or it names a digest that only he was shown.
    """
    if reason is AnswerReason.DONE or reason in _QUIET:
        return
    if not proof.witnessed and notices.item_of(answer.digest) is None:
        return
    try:
        notices.tell_refusal(answer=answer)
    except CountersignError as error:
        log.warning("mail.refusal_not_told", answer=answer.pk, reason=error.code)

"""One contact per intent, whatever crashes: claim → commit → mark → commit → contact → record."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import F, Q

from approvals import freezing, registry, signals
from approvals.clock import database_now
from approvals.exceptions import ContactAlreadyMarked
from approvals.models import Effect, Observation
from approvals.registry import ActKind
from approvals.services import people, transitions
from approvals.services.details import storable
from approvals.types import ContactOutcome, ContactResult
from guards import process, queue
from guards.exceptions import AlreadyDecided, CountersignError, NotFound
from guards.services.units import unit_of_work
from guards.types import Asker

logger = logging.getLogger(__name__)

#: How long one act may take from its claim to its record (ADR-016). Kinds time out well before.
DEADLINE_SECONDS = 120
#: An intent that no worker has claimed for this long is put onto the queue again.
OVERDUE = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class _Intent:
    """An effect that this process holds, with what it opened outside any transaction."""

    effect: Effect
    kind: ActKind
    payload: bytes
    facts: Mapping[str, object]


def dispatch(*, effect_id: UUID | str) -> Effect:
    """Make the one contact of an intent, if this call is the one that may; return where it stands.

    A retry, a restart or a duplicate finds the claim or the mark and makes no contact. Raises
    NotFound; whatever goes wrong with the act itself is its phase.
    """
    claimed = _claim(effect_id)
    if claimed is None:
        return _found(effect_id)
    intent = _open(claimed)
    if intent is None or not _mark(intent):
        return _found(effect_id)
    signals.contact_claimed.send(sender=Effect, effect=intent.effect)
    result = _contact(intent) if _is_in_time(intent.effect) else _too_late(intent)
    signals.contact_returned.send(sender=Effect, effect=intent.effect, result=result)
    if _record(intent.effect, result) and intent.effect.phase == Effect.Phase.ACCEPTED:
        _read_back(intent)
    return _found(effect_id)


def cancel(*, effect_id: UUID | str, by: Asker, reason: str) -> Effect:
    """Give up an intent that nobody has claimed; AlreadyDecided once a worker holds it."""
    people.require_person(by)
    with unit_of_work(durable=True):
        effect = _found(effect_id, lock=True)
        if effect.phase != Effect.Phase.INTENT or effect.claimed_by:
            raise AlreadyDecided("a worker holds this act already")
        transitions.move_effect(
            effect,
            phase=Effect.Phase.CANCELLED,
            settled_at=database_now(),
            reason="cancelled-by-person",
            detail={"by": str(by), "why": reason},
        )
    return effect


def reconcile() -> int:
    """Settle what a lost worker left behind; how many effects moved.

    The holder is provably dead, or the deadline has passed: before the mark nothing can have left
    (cancelled, the approval stays consumed); after it nobody can tell (unknown, for good).
    """
    held = Effect.objects.filter(
        Q(phase=Effect.Phase.MARKED) | (Q(phase=Effect.Phase.INTENT) & ~Q(claimed_by=""))
    ).order_by("created_at")
    now = database_now()
    return sum(_settle_lost(effect, why) for effect in held if (why := _lost(effect, now)))


def enqueue_due(*, overdue: timedelta = OVERDUE) -> int:
    """Put intents that no worker has claimed onto the queue again; how many there were."""
    waiting = Effect.objects.filter(
        phase=Effect.Phase.INTENT, claimed_by="", created_at__lte=database_now() - overdue
    )
    due = list(waiting.values_list("pk", flat=True))
    for effect_id in due:
        queue.enqueue("approvals.tasks.dispatch_effect", str(effect_id))
    return len(due)


def acknowledge_unknown(*, effect_id: UUID | str, by: Asker) -> Effect:
    """A person has seen that nobody can tell: its source may be answered by another act again."""
    people.require_person(by)
    with unit_of_work(durable=True):
        effect = _found(effect_id, lock=True)
        now = database_now()
        moved = Effect.objects.filter(
            pk=effect.pk, phase=Effect.Phase.UNKNOWN, acknowledged_at=None
        ).update(acknowledged_at=now, acknowledged_by=str(by))
        if moved != 1:
            raise AlreadyDecided("there is no unknown outcome here that waits for a person")
        effect.acknowledged_at, effect.acknowledged_by = now, str(by)
        signals.effect_acknowledged.send(sender=Effect, effect=effect, by=str(by))
    return effect


def _claim(effect_id: UUID | str) -> Effect | None:
    """Take an intent that nobody holds, or that this process installed for itself."""
    me = process.this_process()
    with unit_of_work(durable=True):
        deadline = database_now() + timedelta(seconds=DEADLINE_SECONDS)
        taken = Effect.objects.filter(
            Q(claimed_by="") | Q(claimed_by=me), pk=effect_id, phase=Effect.Phase.INTENT
        ).update(claimed_by=me, fence=F("fence") + 1, deadline=deadline)
        effect = _found(effect_id)
    return effect if taken == 1 else None


def _open(effect: Effect) -> _Intent | None:
    """Decrypt and prove the exact bytes, outside any transaction.

    Where that is not possible (no such kind, no key, other bytes) the act has failed before its
    mark: nothing left, and its subject may be tried again.
    """
    try:
        kind = registry.act(effect.kind)
        payload, facts = freezing.open_intent(effect)
    except CountersignError as error:
        _settle(effect, phase=Effect.Phase.FAILED, reason=error.code)
        return None
    return _Intent(effect, kind, payload, facts)


def _mark(intent: _Intent) -> bool:
    """The mark: written once, committed, and only then the contact. False when it must not be."""
    effect = intent.effect
    try:
        with unit_of_work(durable=True):
            now = database_now()
            drifted = intent.kind.recheck_in_writer(freezing.subject_of(effect), intent.facts)
            if drifted is not None:
                transitions.move_effect(
                    effect,
                    phase=Effect.Phase.CANCELLED,
                    settled_at=now,
                    reason="drifted",
                    detail={"field": drifted},
                )
                return False
            transitions.move_effect(effect, phase=Effect.Phase.MARKED, contact_marked_at=now)
    except ContactAlreadyMarked:
        return False
    return True


def _is_in_time(effect: Effect) -> bool:
    """Whether the mark still stands for this worker: one that slept may have been given up."""
    return Effect.objects.filter(
        pk=effect.pk,
        phase=Effect.Phase.MARKED,
        fence=effect.fence,
        deadline__gt=database_now(),
    ).exists()


def _too_late(intent: _Intent) -> ContactResult:
    """No contact: by now the act may be called unknown, acknowledged, and made by another."""
    certain = ContactOutcome.FAILED in intent.kind.outcomes
    outcome = ContactOutcome.FAILED if certain else ContactOutcome.UNKNOWN
    return ContactResult(outcome, "too-late")


def _contact(intent: _Intent) -> ContactResult:
    """The one contact. What it raises after the mark proves nothing: unknown."""
    effect = intent.effect
    try:
        result = intent.kind.contact(freezing.subject_of(effect), intent.payload, intent.facts)
    except Exception as error:
        logger.exception("the contact of effect %s raised", effect.pk)
        return ContactResult(
            ContactOutcome.UNKNOWN, "contact-raised", {"error": type(error).__name__}
        )
    if result.outcome not in intent.kind.outcomes:
        return ContactResult(
            ContactOutcome.UNKNOWN, "impossible-outcome", {"claimed": str(result.outcome)}
        )
    return result


def _record(effect: Effect, result: ContactResult) -> bool:
    """Write the outcome. Where the effect was settled meanwhile, it is an observation only."""
    moved = _settle(
        effect, phase=str(result.outcome), reason=result.reason, detail=dict(result.detail)
    )
    if not moved:
        _observe(effect, result)
    return moved


def _read_back(intent: _Intent) -> None:
    """Look independently, within the same job. It proves arrival, or adds an observation."""
    effect = intent.effect
    try:
        seen = intent.kind.readback(freezing.subject_of(effect), intent.payload, intent.facts)
    except Exception:
        logger.exception("reading effect %s back raised", effect.pk)
        return
    if seen is None:
        return
    if seen.outcome is ContactOutcome.VERIFIED:
        _record(effect, seen)
    else:
        _observe(effect, seen)


def _settle(effect: Effect, *, phase: str, reason: str, detail: Mapping[str, object] = {}) -> bool:
    try:
        with unit_of_work(durable=True):
            transitions.move_effect(
                effect,
                phase=phase,
                settled_at=database_now(),
                reason=reason[:64],
                detail={**effect.detail, **storable(detail)},
            )
    except ContactAlreadyMarked:
        return False
    return True


def _observe(effect: Effect, result: ContactResult) -> None:
    with unit_of_work(durable=True):
        Observation.objects.create(
            effect=effect,
            at=database_now(),
            observer=process.this_process(),
            outcome=str(result.outcome),
            detail={"reason": result.reason, **storable(result.detail)},
        )


def _lost(effect: Effect, now: datetime) -> str | None:
    if process.is_dead(effect.claimed_by):
        return "worker-lost"
    if effect.deadline is not None and effect.deadline <= now:
        return "deadline-passed"
    return None


def _settle_lost(effect: Effect, reason: str) -> bool:
    marked = effect.phase == Effect.Phase.MARKED
    phase = Effect.Phase.UNKNOWN if marked else Effect.Phase.CANCELLED
    return _settle(effect, phase=phase, reason=reason)


def _found(effect_id: UUID | str, *, lock: bool = False) -> Effect:
    rows = Effect.objects.select_for_update() if lock else Effect.objects.all()
    found = rows.filter(pk=effect_id).first()
    if found is None:
        raise NotFound(f"there is no effect {effect_id}", field="effect")
    return found

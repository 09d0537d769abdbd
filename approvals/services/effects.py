"""One contact per intent, whatever crashes: claim → commit → mark → commit → contact → record."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.db.models import Q

from approvals import freezing, registry, signals
from approvals.clock import database_now
from approvals.exceptions import Blocked, ContactAlreadyMarked, ContactRefused
from approvals.models import Effect, Job, Observation
from approvals.registry import ActKind
from approvals.services import authority, consents, goals, jobs, people, transitions
from approvals.services.details import storable
from approvals.types import Act, Contact, ContactOutcome, ContactResult, Grant, Purpose
from guards import process, queue
from guards.exceptions import AlreadyDecided, CountersignError, NotFound
from guards.services.units import unit_of_work
from guards.types import Asker

logger = logging.getLogger(__name__)

#: An intent that no worker has claimed for this long is put onto the queue again.
OVERDUE = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class _Intent:
    """An effect that this process holds, with what it opened outside any transaction."""

    effect: Effect
    kind: ActKind
    payload: bytes
    facts: Mapping[str, object]

    @property
    def is_exclusive(self) -> bool:
        """Whether the kind counts its one contact: then the mark counts it."""
        return Contact.POST in self.kind.caps.get(Purpose.EXECUTE, {})

    def act(self, grant: Grant) -> Act:
        """What the kind gets to see of it."""
        effect = self.effect
        return Act(effect.pk, freezing.subject_of(effect), self.payload, self.facts, grant)


def dispatch(*, effect_id: UUID | str) -> Effect:
    """Make the one contact of an intent, if this call is the one that may; return where it stands.

    A retry, a restart or a duplicate finds the claim or the mark and makes no contact. Raises
    NotFound; whatever goes wrong with the act itself is its phase.
    """
    claimed = _claim(effect_id)
    if claimed is None:
        return _found(effect_id)
    try:
        _carry_out(claimed)
    finally:
        jobs.quiesce(claimed.job)
    return _close_goal(_found(effect_id))


def _carry_out(claimed: Effect) -> None:
    intent = _open(claimed)
    if intent is None:
        return
    observed = _observe_source(intent)
    if observed is None or not _mark(intent, observed):
        return
    signals.contact_claimed.send(sender=Effect, effect=intent.effect)
    late = _why_too_late(intent, observed)
    result = _no_contact(intent, late) if late else _contact(intent)
    signals.contact_returned.send(sender=Effect, effect=intent.effect, result=result)
    if _record(intent.effect, result) and intent.effect.phase == Effect.Phase.ACCEPTED:
        _read_back(intent)


def cancel(*, effect_id: UUID | str, by: Asker, reason: str) -> Effect:
    """Give up an intent that nobody has claimed; AlreadyDecided once a worker holds it."""
    people.require_stopper(by)
    with unit_of_work(durable=True):
        jobs.lock(_found(effect_id).job)
        effect = _found(effect_id, lock=True)
        if effect.phase != Effect.Phase.INTENT or effect.job.holder:
            raise AlreadyDecided("a worker holds this act already")
        transitions.move_effect(
            effect,
            phase=Effect.Phase.CANCELLED,
            settled_at=database_now(),
            reason="cancelled-by-person",
            detail={"by": str(by), "why": reason},
        )
        jobs.finish(effect.job, outcome=effect.phase, reason=effect.reason)
    return _close_goal(effect)


def reconcile() -> int:
    """Settle what a lost worker left behind; how many effects moved.

    The attempt ended without a record, its holder is provably dead, or the deadline has passed.
    Before the mark nothing can have left, and by its phase nothing can any more (cancelled, the
    approval stays consumed); after it nobody can tell (unknown, for good).
    """
    held = (
        Effect.objects.filter(
            Q(phase=Effect.Phase.MARKED) | (Q(phase=Effect.Phase.INTENT) & ~Q(job__holder=""))
        )
        .select_related("job", "goal")
        .order_by("created_at")
    )
    return sum(_settle_lost(effect, why) for effect in held if (why := jobs.why_lost(effect.job)))


def enqueue_due(*, overdue: timedelta = OVERDUE) -> int:
    """Put intents that no worker has claimed onto the queue again; how many there were."""
    waiting = Effect.objects.filter(
        phase=Effect.Phase.INTENT, job__holder="", created_at__lte=database_now() - overdue
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
    with unit_of_work(durable=True):
        effect = _found(effect_id)
        if effect.phase != Effect.Phase.INTENT:
            return None
        job = jobs.claim(effect.job_id)
        if job is not None:
            effect.job = job
    return effect if job is not None else None


def _open(effect: Effect) -> _Intent | None:
    """Decrypt and prove the exact bytes, outside any transaction.

    Where that is not possible (no such kind, no key, other bytes) the act has failed before its
    mark: nothing left, and its subject may be tried again.
    """
    try:
        kind = registry.act(effect.kind)
        payload, facts = freezing.open_intent(effect)
    except CountersignError as error:
        _settle(
            effect,
            phase=Effect.Phase.FAILED,
            reason=error.code,
            detail={"field": error.field or ""},
        )
        return None
    return _Intent(effect, kind, payload, facts)


def _observe_source(intent: _Intent) -> float | None:
    """The last look before the mark, and when it was (monotonic). None: the act was given up."""
    effect = intent.effect
    try:
        observed = intent.kind.observe(intent.act(consents.JobGrant(effect.job)))
    except (Blocked, ContactRefused) as error:
        _give_up(effect, error.reason, error.field)
    except Exception as error:
        logger.exception("the last look before effect %s raised", effect.pk)
        _settle(
            effect,
            phase=Effect.Phase.FAILED,
            reason="look-raised",
            detail={"error": type(error).__name__},
        )
    else:
        if observed is not None:
            return observed
        if Contact.READ not in intent.kind.caps.get(Purpose.EXECUTE, {}):
            return time.monotonic()
        _give_up(effect, "not_observed", "source")  # a kind that reads its source has to say when
    return None


def _mark(intent: _Intent, observed: float) -> bool:
    """The mark: written once, committed, and only then the contact. False when it must not be.

    The transaction that writes it looks at the whole authority and at every bound field again.
    """
    effect = intent.effect
    try:
        with unit_of_work(durable=True):
            reason, field = _why_not(intent, observed)
            Job.objects.select_for_update().get(pk=effect.job_id)
            if reason:
                transitions.move_effect(
                    effect,
                    phase=Effect.Phase.CANCELLED,
                    settled_at=database_now(),
                    reason=reason,
                    detail={"field": field},
                )
                jobs.finish(effect.job, outcome=effect.phase, reason=reason)
                return False
            transitions.move_effect(
                effect, phase=Effect.Phase.MARKED, contact_marked_at=database_now()
            )
    except ContactAlreadyMarked:
        return False
    return True


def _why_not(intent: _Intent, observed: float) -> tuple[str, str]:
    """Why the contact must not be made now, and the field that says so; two empty texts if it may.

    Where the kind counts its one contact, it is counted here.
    """
    effect = intent.effect
    try:
        authority.require_effect(effect)
        drifted = intent.kind.recheck_in_writer(freezing.subject_of(effect), intent.facts)
        if drifted is not None:
            return "drifted", drifted
        if not 0 <= time.monotonic() - observed <= intent.kind.freshness:
            return "observation_stale", "source"
        if intent.is_exclusive and effect.consent_id is not None:
            consents.take(consent_id=effect.consent_id, contact=Contact.POST)
    except (Blocked, ContactRefused) as error:
        return error.reason, error.field or ""
    return "", ""


def _give_up(effect: Effect, reason: str, field: str | None) -> None:
    """Nothing was contacted, and nothing will be."""
    _settle(effect, phase=Effect.Phase.CANCELLED, reason=reason, detail={"field": field or ""})


def _why_too_late(intent: _Intent, observed: float) -> str:
    """Why a worker that slept after its mark makes no contact, empty where it may: the act was
    given up meanwhile, its authority has ended, or what was seen of its source is too old.
    """
    effect, now = intent.effect, database_now()
    marked = Effect.objects.filter(pk=effect.pk, phase=Effect.Phase.MARKED)
    if not marked.filter(job__fence=effect.job.fence, job__deadline__gt=now).exists():
        return "too-late"
    try:
        if effect.consent_id is not None:
            with unit_of_work(durable=True):
                authority.require_effect(effect)
    except ContactRefused as error:
        return error.reason
    is_fresh = time.monotonic() - observed <= intent.kind.freshness
    return "" if is_fresh else "observation_stale"


def _no_contact(intent: _Intent, reason: str) -> ContactResult:
    """By now the act may be called unknown, acknowledged, and made by another."""
    certain = ContactOutcome.FAILED in intent.kind.outcomes
    outcome = ContactOutcome.FAILED if certain else ContactOutcome.UNKNOWN
    return ContactResult(outcome, reason)


def _contact(intent: _Intent) -> ContactResult:
    """The one contact. What it raises after the mark proves nothing: unknown."""
    effect = intent.effect
    grant = consents.JobGrant(effect.job, marked=Contact.POST if intent.is_exclusive else None)
    try:
        result = intent.kind.contact(intent.act(grant))
    except Exception as error:
        logger.exception("the contact of effect %s raised", effect.pk)
        return ContactResult(
            ContactOutcome.UNKNOWN, "contact-raised", {"error": type(error).__name__}
        )
    if result.outcome in intent.kind.outcomes:
        return result
    if (
        result.outcome is ContactOutcome.ACCEPTED
        and ContactOutcome.VERIFIED in intent.kind.outcomes
    ):
        return _proved(intent, result)
    return ContactResult(
        ContactOutcome.UNKNOWN, "impossible-outcome", {"claimed": str(result.outcome)}
    )


def _proved(intent: _Intent, taken: ContactResult) -> ContactResult:
    """Of a kind that is never merely accepted: what its read-back proves, or unknown."""
    seen = _seen(intent)
    if seen is None:
        return ContactResult(ContactOutcome.UNKNOWN, "not_read_back", taken.detail)
    outcome = seen.outcome
    if outcome is not ContactOutcome.VERIFIED:
        outcome = ContactOutcome.UNKNOWN
    return ContactResult(outcome, seen.reason, {**taken.detail, **seen.detail})


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
    seen = _seen(intent)
    if seen is None:
        return
    if seen.outcome is ContactOutcome.VERIFIED:
        _record(intent.effect, seen)
    else:
        _observe(intent.effect, seen)


def _seen(intent: _Intent) -> ContactResult | None:
    """What the kind's own look found; None where it proves nothing or could not look."""
    try:
        return intent.kind.readback(intent.act(consents.JobGrant(intent.effect.job)))
    except ContactRefused as error:
        return ContactResult(ContactOutcome.UNKNOWN, error.reason, {"field": error.field or ""})
    except Exception:
        logger.exception("reading effect %s back raised", intent.effect.pk)
        return None


def _settle(effect: Effect, *, phase: str, reason: str, detail: Mapping[str, object] = {}) -> bool:
    try:
        with unit_of_work(durable=True):
            Job.objects.select_for_update().get(pk=effect.job_id)
            transitions.move_effect(
                effect,
                phase=phase,
                settled_at=database_now(),
                reason=reason[:64],
                detail={**effect.detail, **storable(detail)},
            )
            jobs.finish(effect.job, outcome=phase, reason=reason)
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


def _settle_lost(effect: Effect, reason: str) -> bool:
    marked = effect.phase == Effect.Phase.MARKED
    phase = Effect.Phase.UNKNOWN if marked else Effect.Phase.CANCELLED
    moved = _settle(effect, phase=phase, reason=reason)
    _close_goal(effect)
    return moved


def _close_goal(effect: Effect) -> Effect:
    """The review is over once its act has settled, however it did. Outside any transaction."""
    if effect.goal is not None and effect.phase not in Effect.OUTSTANDING:
        goals.close(effect.goal)
    return effect


def _found(effect_id: UUID | str, *, lock: bool = False) -> Effect:
    rows = Effect.objects.select_related("job", "consent", "goal", "approval")
    if lock:
        rows = rows.select_for_update(of=("self",))
    found = rows.filter(pk=effect_id).first()
    if found is None:
        raise NotFound(f"there is no effect {effect_id}", field="effect")
    return found

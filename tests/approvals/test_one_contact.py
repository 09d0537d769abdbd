"""Claim, mark, contact, record: at most one contact per intent, and an honest phase after it."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from django.db import DatabaseError, IntegrityError, transaction
from django.utils import timezone

from approvals import signals, tasks
from approvals.models import Approval, Artifact, Effect, Job, Observation
from approvals.services import approvals, artifacts, effects
from approvals.types import ContactOutcome, ContactResult
from guards.exceptions import AlreadyDecided, NotFound
from guards.services.units import unit_of_work
from guards.types import Subject
from teams.models import Event
from tests.approvals import factories
from tests.approvals.kinds import ACCEPT, CountingKind

pytestmark = pytest.mark.django_db

UNKNOWN = ContactResult(ContactOutcome.UNKNOWN, "connection-lost-after-data")
FAILED = ContactResult(ContactOutcome.FAILED, "smtp-550", {"code": 550})
VERIFIED = ContactResult(ContactOutcome.VERIFIED, "found-in-sent")


class Crash(BaseException):
    """The process ends here."""


def lose_the_worker(effect: Effect) -> None:
    """Its deadline passes, and nobody has heard of it."""
    past = timezone.now() - timedelta(hours=1)
    Job.objects.filter(pk=effect.job_id).update(deadline=past)


@pytest.mark.invariant(18)
def test_the_contact_gets_exactly_the_approved_bytes(kind: CountingKind) -> None:
    effect = factories.intent()
    kind.body = b"something else by now"
    done = effects.dispatch(effect_id=effect.pk)
    assert done.phase == Effect.Phase.ACCEPTED
    assert kind.contacts() == [f"{effect.subject_id} {effect.subject_id}@x exactly these bytes"]
    assert done.contact_marked_at is not None
    kinds = Event.objects.filter(subject_id=str(effect.pk)).values_list("kind", flat=True)
    assert list(kinds) == ["effect.intent", "effect.marked", "effect.accepted"]


@pytest.mark.one_database
@pytest.mark.invariant(19)
@pytest.mark.parametrize(
    ("result", "phase"),
    [
        (ACCEPT, "accepted"),
        (FAILED, "failed"),
        (UNKNOWN, "unknown"),
        (VERIFIED, "verified"),
        (RuntimeError("the library broke"), "unknown"),
    ],
)
def test_every_answer_has_its_phase_and_is_final(
    kind: CountingKind, result: ContactResult | BaseException, phase: str
) -> None:
    kind.result = result
    effect = effects.dispatch(effect_id=factories.intent().pk)
    assert effect.phase == phase
    for _ in range(3):
        assert effects.dispatch(effect_id=effect.pk).phase == phase
    assert len(kind.contacts()) == 1


@pytest.mark.one_database
@pytest.mark.invariant(19)
@pytest.mark.fault("send-04", "queue-03", "queue-05")
def test_a_repeated_task_makes_no_further_contact(kind: CountingKind) -> None:
    kind.result = RuntimeError("after the delivery")
    effect = factories.intent()
    for _ in range(4):
        tasks.dispatch_effect(str(effect.pk))
    assert len(kind.contacts()) == 1
    effect.refresh_from_db()
    assert (effect.phase, effect.reason) == ("unknown", "contact-raised")


@pytest.mark.one_database
def test_an_outcome_that_its_kind_cannot_have_is_unknown(kind: CountingKind) -> None:
    kind.outcomes = frozenset({ContactOutcome.FAILED, ContactOutcome.UNKNOWN})
    assert effects.dispatch(effect_id=factories.intent().pk).reason == "impossible-outcome"


@pytest.mark.one_database
@pytest.mark.invariant(20)
@pytest.mark.parametrize(
    ("seen", "phase", "observations"),
    [
        (None, "accepted", 0),
        (VERIFIED, "verified", 0),
        (UNKNOWN, "accepted", 1),
        (RuntimeError("no such folder"), "accepted", 0),
    ],
)
def test_reading_back_verifies_or_only_observes(
    kind: CountingKind, seen: ContactResult | BaseException | None, phase: str, observations: int
) -> None:
    kind.seen = seen
    effect = effects.dispatch(effect_id=factories.intent().pk)
    assert effect.phase == phase
    assert effect.observations.count() == observations


@pytest.mark.invariant(18)
@pytest.mark.fault("approval-02")
def test_drift_between_yes_and_mark_cancels_and_names_the_field(kind: CountingKind) -> None:
    effect = factories.intent()
    kind.drifted = "account"
    done = effects.dispatch(effect_id=effect.pk)
    assert (done.phase, done.reason, done.detail) == ("cancelled", "drifted", {"field": "account"})
    assert done.contact_marked_at is None
    assert done.approval.state == Approval.State.CONSUMED
    assert kind.contacts() == []


@pytest.mark.one_database
@pytest.mark.invariant(18)
def test_bytes_that_do_not_open_fail_before_any_contact(kind: CountingKind) -> None:
    effect = factories.intent()
    forged = artifacts.encrypt(b"pay the other account")
    Artifact.objects.filter(pk=effect.payload_id).update(ciphertext=forged.ciphertext)
    done = effects.dispatch(effect_id=effect.pk)
    assert (done.phase, done.reason) == ("failed", "artifact-unreadable")
    assert kind.contacts() == []


@pytest.mark.invariant(18)
@pytest.mark.parametrize("column", ["digest", "kind", "subject_id", "account_id", "payload_id"])
def test_an_intent_is_frozen_by_the_database(kind: CountingKind, column: str) -> None:
    effect = factories.intent()
    other = factories.intent()
    value = "another" if column in ("kind", "account_id") else getattr(other, column)
    with pytest.raises(IntegrityError), transaction.atomic():
        Effect.objects.filter(pk=effect.pk).update(**{column: value})


def test_the_mark_is_written_once_and_never_cleared(kind: CountingKind) -> None:
    effect = effects.dispatch(effect_id=factories.intent().pk)
    for value in (None, timezone.now()):
        with pytest.raises(IntegrityError), transaction.atomic():
            Effect.objects.filter(pk=effect.pk).update(contact_marked_at=value)
    fresh = factories.intent()
    with pytest.raises(IntegrityError), transaction.atomic():
        Effect.objects.filter(pk=fresh.pk).update(contact_marked_at=timezone.now())


@pytest.mark.invariant(20)
@pytest.mark.parametrize("phase", ["intent", "marked", "failed", "unknown", "cancelled"])
def test_a_settled_phase_goes_nowhere_whoever_writes(kind: CountingKind, phase: str) -> None:
    effect = effects.dispatch(effect_id=factories.intent().pk)
    with pytest.raises(IntegrityError), transaction.atomic():
        Effect.objects.filter(pk=effect.pk).update(phase=phase)


def test_a_decided_approval_goes_nowhere_whoever_writes(kind: CountingKind) -> None:
    effect = factories.intent()
    for state in ("pending", "approved", "rejected", "expired"):
        with pytest.raises(IntegrityError), transaction.atomic():
            Approval.objects.filter(pk=effect.approval_id).update(state=state)
    with pytest.raises(IntegrityError), transaction.atomic():
        Approval.objects.filter(pk=effect.approval_id).update(digest="0" * 64)


@pytest.mark.fault("W22")
def test_observations_are_append_only(kind: CountingKind) -> None:
    kind.seen = UNKNOWN
    effect = effects.dispatch(effect_id=factories.intent().pk)
    for act in (
        lambda: Observation.objects.filter(effect=effect).update(outcome="verified"),
        lambda: Observation.objects.filter(effect=effect).delete(),
        lambda: Effect.objects.filter(pk=effect.pk).delete(),
    ):
        with pytest.raises(DatabaseError), transaction.atomic():
            act()


@pytest.mark.one_database
@pytest.mark.invariant(19, 20)
@pytest.mark.fault("send-02")
def test_a_crash_after_the_mark_is_unknown_and_stays_so(kind: CountingKind) -> None:
    kind.before = _crash
    effect = factories.intent()
    with pytest.raises(Crash):
        effects.dispatch(effect_id=effect.pk)
    lose_the_worker(effect)
    assert effects.reconcile() == 1
    kind.before = lambda: None
    done = effects.dispatch(effect_id=effect.pk)
    assert (done.phase, done.reason) == ("unknown", "deadline-passed")
    assert kind.contacts() == []
    assert effects.reconcile() == 0


@pytest.mark.one_database
@pytest.mark.invariant(24)
@pytest.mark.fault("send-01")
def test_an_acceptance_that_could_not_be_recorded_is_unknown(kind: CountingKind) -> None:
    kind.after = _crash
    effect = factories.intent()
    with pytest.raises(Crash):
        effects.dispatch(effect_id=effect.pk)
    lose_the_worker(effect)
    effects.reconcile()
    for _ in range(3):
        assert effects.dispatch(effect_id=effect.pk).phase == Effect.Phase.UNKNOWN
    assert len(kind.contacts()) == 1


@pytest.mark.one_database
def test_a_crash_between_claim_and_mark_is_cancelled(kind: CountingKind) -> None:
    effect = factories.intent()
    claimed = effects._claim(effect.pk)
    assert claimed is not None
    assert effects.reconcile() == 0
    lose_the_worker(effect)
    assert effects.reconcile() == 1
    effect.refresh_from_db()
    assert (effect.phase, effect.approval.state) == ("cancelled", "consumed")
    assert effects.dispatch(effect_id=effect.pk).phase == Effect.Phase.CANCELLED
    assert kind.contacts() == []


@pytest.mark.one_database
@pytest.mark.invariant(20)
@pytest.mark.fault("send-03")
def test_an_answer_after_the_deadline_only_adds_an_observation(kind: CountingKind) -> None:
    effect = factories.intent()

    def settled_meanwhile() -> None:
        lose_the_worker(effect)
        assert effects.reconcile() == 1

    kind.after = settled_meanwhile
    done = effects.dispatch(effect_id=effect.pk)
    assert done.phase == Effect.Phase.UNKNOWN
    assert [seen.outcome for seen in done.observations.all()] == ["accepted"]
    assert len(kind.contacts()) == 1


@pytest.mark.one_database
@pytest.mark.invariant(19)
def test_a_duplicate_during_the_contact_neither_contacts_nor_hides_the_outcome(
    kind: CountingKind,
) -> None:
    effect = factories.intent()
    kind.after = lambda: _ignore(effects.dispatch(effect_id=effect.pk))
    done = effects.dispatch(effect_id=effect.pk)
    assert (done.phase, done.observations.count()) == ("accepted", 0)
    assert len(kind.contacts()) == 1


def test_an_intent_that_another_worker_holds_is_not_taken_over(kind: CountingKind) -> None:
    effect = factories.intent()
    Job.objects.filter(pk=effect.job_id).update(
        holder="elsewhere:boot/1:7:99",
        fence=1,
        attempts=1,
        claimed_at=timezone.now(),
        deadline=timezone.now() + timedelta(minutes=1),
    )
    assert effects.dispatch(effect_id=effect.pk).phase == Effect.Phase.INTENT
    assert effects.reconcile() == 0  # on another host: not provably dead, and in time
    assert kind.contacts() == []


def test_a_holder_that_lost_its_fence_makes_no_contact(kind: CountingKind) -> None:
    effect = factories.intent()
    first = effects._claim(effect.pk)
    assert first is not None
    held = effects._open(first)
    assert held is not None
    assert effects._claim(effect.pk) is None  # a job is claimed once, by whomever
    Job.objects.filter(pk=effect.job_id).update(fence=2)
    assert effects._mark(held, time.monotonic()) is False
    effect.refresh_from_db()
    assert effect.contact_marked_at is None


@pytest.mark.one_database
def test_a_receiver_that_fails_after_the_mark_leaves_it_marked(kind: CountingKind) -> None:
    def fail(**_: object) -> None:
        raise Crash

    effect = factories.intent()
    signals.contact_claimed.connect(fail)
    try:
        with pytest.raises(Crash):
            effects.dispatch(effect_id=effect.pk)
    finally:
        signals.contact_claimed.disconnect(fail)
    effect.refresh_from_db()
    assert effect.phase == Effect.Phase.MARKED
    assert effects.dispatch(effect_id=effect.pk).phase == Effect.Phase.MARKED
    assert kind.contacts() == []


@pytest.mark.one_database
@pytest.mark.parametrize("asleep", ["past the deadline", "until it was called unknown", "shortly"])
def test_a_worker_that_slept_after_its_mark_makes_no_contact(
    kind: CountingKind, asleep: str
) -> None:
    """By then a person may have acknowledged the unknown, and another act may have left."""

    def sleep(effect: Effect, **_: object) -> None:
        if asleep != "shortly":
            past = timezone.now() - timedelta(seconds=1)
            Job.objects.filter(pk=effect.job_id).update(deadline=past)
        if asleep == "until it was called unknown":
            assert effects.reconcile() == 1

    signals.contact_claimed.connect(sleep)
    try:
        effect = effects.dispatch(effect_id=factories.intent().pk)
    finally:
        signals.contact_claimed.disconnect(sleep)
    assert (effect.phase, effect.reason, len(kind.contacts())) == {
        "past the deadline": ("failed", "too-late", 0),
        "until it was called unknown": ("unknown", "deadline-passed", 0),
        "shortly": ("accepted", "smtp-250", 1),
    }[asleep]


@pytest.mark.one_database
def test_the_signals_come_outside_any_transaction(kind: CountingKind) -> None:
    order: list[str] = []

    def claimed(effect: Effect, **_: object) -> None:
        order.append(f"claimed {Effect.objects.get(pk=effect.pk).phase}")

    def returned(effect: Effect, result: ContactResult, **_: object) -> None:
        order.append(f"returned {result.reason} {Effect.objects.get(pk=effect.pk).phase}")

    signals.contact_claimed.connect(claimed)
    signals.contact_returned.connect(returned)
    try:
        effects.dispatch(effect_id=factories.intent().pk)
    finally:
        signals.contact_claimed.disconnect(claimed)
        signals.contact_returned.disconnect(returned)
    assert order == ["claimed marked", "returned smtp-250 marked"]


@pytest.mark.one_database
def test_a_dispatch_inside_a_transaction_is_refused(kind: CountingKind) -> None:
    effect = factories.intent()
    with unit_of_work(), pytest.raises(RuntimeError):
        effects.dispatch(effect_id=effect.pk)
    assert kind.contacts() == []


@pytest.mark.one_database
def test_an_unknown_outcome_blocks_its_source_until_a_person_acknowledges(
    kind: CountingKind,
) -> None:
    kind.result = UNKNOWN
    first = effects.dispatch(effect_id=factories.intent().pk)
    again = factories.opened(
        source=_reference(first, "source"), account=_reference(first, "account")
    )
    with pytest.raises(Exception, match="outstanding"):
        factories.approve(again)
    effects.acknowledge_unknown(effect_id=first.pk, by=factories.OPERATOR)
    assert factories.approve(again).phase == Effect.Phase.INTENT
    first.refresh_from_db()
    assert (first.phase, first.acknowledged_by) == ("unknown", "operator:ada")
    with pytest.raises(AlreadyDecided):
        effects.acknowledge_unknown(effect_id=first.pk, by=factories.OPERATOR)
    assert Event.objects.filter(kind="effect.acknowledged").count() == 1


def test_a_person_cancels_only_what_no_worker_holds(kind: CountingKind) -> None:
    first, second = factories.intent(), factories.intent()
    done = effects.cancel(effect_id=first.pk, by=factories.OPERATOR, reason="changed my mind")
    assert done.phase == Effect.Phase.CANCELLED
    assert effects.dispatch(effect_id=first.pk).phase == Effect.Phase.CANCELLED
    effects._claim(second.pk)
    with pytest.raises(AlreadyDecided):
        effects.cancel(effect_id=second.pk, by=factories.OPERATOR, reason="too late")
    assert kind.contacts() == []


@pytest.mark.one_database
def test_what_provably_never_left_may_be_tried_again(kind: CountingKind) -> None:
    kind.result = FAILED
    wish = factories.request()
    first = approvals.approve_by_policy(request=wish, judgement=factories.ALLOWED)
    assert effects.dispatch(effect_id=first.pk).phase == Effect.Phase.FAILED
    kind.result = ACCEPT
    second = approvals.approve_by_policy(request=wish, judgement=factories.ALLOWED)
    assert second.pk != first.pk
    assert effects.dispatch(effect_id=second.pk).phase == Effect.Phase.ACCEPTED


def test_the_sweep_wakes_an_intent_that_nobody_took(kind: CountingKind) -> None:
    effect = factories.intent()
    assert effects.enqueue_due() == 0
    assert effects.enqueue_due(overdue=timedelta(seconds=-1)) == 1
    effects._claim(effect.pk)
    assert effects.enqueue_due(overdue=timedelta(seconds=-1)) == 0


def test_what_the_other_side_says_is_kept_in_any_database(kind: CountingKind) -> None:
    kind.result = ContactResult(
        ContactOutcome.FAILED,
        "smtp-550",
        {"text": "no\x00\udcff", "codes": [550, None], "b": b"\xff"},
    )
    effect = effects.dispatch(effect_id=factories.intent().pk)
    assert effect.detail == {"text": "no\ufffd?", "codes": [550, None], "b": "\ufffd"}


@pytest.mark.one_database
def test_an_effect_that_does_not_exist_is_named(kind: CountingKind) -> None:
    with pytest.raises(NotFound):
        effects.dispatch(effect_id="00000000-0000-0000-0000-000000000000")


def _ignore(_: object) -> None:
    return None


def _crash() -> None:
    raise Crash


def _reference(effect: Effect, name: str) -> Subject:
    return Subject(getattr(effect, f"{name}_type"), getattr(effect, f"{name}_id"))

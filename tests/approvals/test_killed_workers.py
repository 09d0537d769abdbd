"""Real processes, really killed, on a database that they share: the provider counts."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from approvals import signals
from approvals.models import Approval, Effect, Hold
from approvals.services import approvals, effects, holds
from guards.exceptions import CountersignError
from guards.signals import unit_closing
from guards.types import Subject
from teams.services import verification
from tests.approvals import factories
from tests.approvals.kinds import CountingKind
from tests.approvals.points import on_both
from tests.databases import exit_of, forked, kill_me, shared

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def real_database(transactional_db: None, tmp_path: Path) -> Iterator[None]:
    with shared(tmp_path):
        yield


def kill_at_unit(number: int) -> None:
    """Die as the last thing inside the n-th transaction of this process, before it commits."""
    seen = []

    def count(**_: object) -> None:
        seen.append(1)
        if len(seen) == number:
            kill_me()

    unit_closing.connect(count, weak=False)


def die_on(signal_of_ours: object) -> None:
    """Die when approvals announces something."""
    signal_of_ours.connect(lambda **_: kill_me(), weak=False)  # type: ignore[attr-defined]


#: Where a dispatching worker dies; the phase that remains; the contacts that the provider saw.
POINTS: dict[str, tuple[Callable[[CountingKind], None], str, int]] = {
    "before-claim-commits": (lambda kind: kill_at_unit(1), "intent", 0),
    "before-mark-commits": (lambda kind: kill_at_unit(2), "cancelled", 0),
    "after-mark": (lambda kind: die_on(signals.contact_claimed), "unknown", 0),
    "before-contact": (lambda kind: setattr(kind, "before", kill_me), "unknown", 0),
    "after-contact": (lambda kind: setattr(kind, "after", kill_me), "unknown", 1),
    "before-record": (lambda kind: die_on(signals.contact_returned), "unknown", 1),
    "before-record-commits": (lambda kind: kill_at_unit(3), "unknown", 1),
    "after-record": (lambda kind: kill_at_unit(4), "accepted", 1),
}
#: Beside a point that leaves the same: for the long run.
ALIKE = ("before-contact", "before-record")


@pytest.mark.invariant(19)
@pytest.mark.fault("send-01", "send-02", "queue-01", "queue-02")
@pytest.mark.parametrize(
    "point", on_both(POINTS, "after-mark", "before-record-commits", soak=ALIKE)
)
def test_a_killed_worker_leaves_an_honest_phase_and_no_second_contact(
    kind: CountingKind, point: str
) -> None:
    prepare, phase, contacts = POINTS[point]
    effect = factories.intent()

    def work() -> None:
        prepare(kind)
        effects.dispatch(effect_id=effect.pk)
        if point == "after-record":
            kill_me()

    assert exit_of(forked(work)) == -signal.SIGKILL
    effects.reconcile()
    effect.refresh_from_db()
    assert effect.phase == phase
    for _ in range(2):  # restarts: other processes find the same row
        assert exit_of(forked(lambda: _dispatch(effect))) == 0
        effects.reconcile()
    effect.refresh_from_db()
    assert effect.phase == ("accepted" if phase == "intent" else phase)
    assert len(kind.contacts()) == (1 if phase == "intent" else contacts)
    assert verification.verify().ok


def test_a_yes_killed_before_its_commit_never_was(kind: CountingKind) -> None:
    approval = factories.opened()

    def work() -> None:
        kill_at_unit(1)
        factories.approve(approval)

    assert exit_of(forked(work)) == -signal.SIGKILL
    approval.refresh_from_db()
    assert approval.state == Approval.State.PENDING
    assert not Effect.objects.exists()
    assert Hold.objects.get().state == Hold.State.WAITING
    assert factories.approve(approval).phase == Effect.Phase.INTENT
    assert verification.verify().ok


@pytest.mark.one_database
def test_an_intent_whose_installer_died_is_cancelled(kind: CountingKind) -> None:
    wish = factories.request()

    def work() -> None:
        approvals.approve_by_policy(request=wish, judgement=factories.ALLOWED)
        kill_me()

    exit_of(forked(work))
    effect = Effect.objects.get()
    assert (effect.phase, effects.reconcile()) == ("intent", 1)
    effect.refresh_from_db()
    assert (effect.phase, effect.reason) == ("cancelled", "worker-lost")
    assert kind.contacts() == []


@pytest.mark.one_database
def test_a_living_worker_is_left_alone(kind: CountingKind) -> None:
    effect = factories.intent()
    kind.before = _stop_me
    pid = forked(lambda: _dispatch(effect))
    os.waitpid(pid, os.WUNTRACED)
    assert effects.reconcile() == 0
    os.kill(pid, signal.SIGCONT)
    assert exit_of(pid) == 0
    effect.refresh_from_db()
    assert effect.phase == Effect.Phase.ACCEPTED


@pytest.mark.invariant(19)
@pytest.mark.fault("queue-05", "queue-06", "send-04")
def test_many_workers_make_one_contact_per_intent(kind: CountingKind) -> None:
    intents = [factories.intent() for _ in range(6)]
    start, go = os.pipe()

    def work() -> None:
        os.read(start, 1)  # all begin together
        for effect in intents:
            effects.dispatch(effect_id=effect.pk)

    workers = [forked(work) for _ in range(4)]
    os.write(go, b"....")
    assert [exit_of(pid) for pid in workers] == [0, 0, 0, 0]
    assert len(kind.contacts()) == len(intents)
    assert all(len(kind.contacts(_subject(effect))) == 1 for effect in intents)
    assert set(Effect.objects.values_list("phase", flat=True)) == {"accepted"}
    assert verification.verify().ok


@pytest.mark.invariant(19)
@pytest.mark.fault("queue-06")
def test_many_clicks_consume_one_approval(kind: CountingKind) -> None:
    pages = [factories.opened() for _ in range(4)]
    start, go = os.pipe()

    def work() -> None:
        os.read(start, 1)
        for approval in pages:
            factories.approve(approval)

    workers = [forked(work) for _ in range(4)]
    os.write(go, b"....")
    assert [exit_of(pid) for pid in workers] == [0, 0, 0, 0]
    assert Effect.objects.count() == len(pages)
    assert set(Approval.objects.values_list("state", flat=True)) == {"consumed"}
    assert verification.verify().ok


def test_a_yes_and_a_withdrawal_at_once_have_one_winner(kind: CountingKind) -> None:
    pages = [factories.opened() for _ in range(6)]
    start, go = os.pipe()

    def racing(act: Callable[[Approval], object]) -> Callable[[], None]:
        def work() -> None:
            os.read(start, 1)
            for approval in pages:
                try:
                    act(approval)
                except CountersignError:
                    continue

        return work

    def withdraw(approval: Approval) -> object:
        return holds.withdraw(hold_id=approval.hold_id, by=factories.AGENT, reason="no longer")

    workers = [forked(racing(factories.approve)), forked(racing(withdraw))]
    os.write(go, b"..")
    assert [exit_of(pid) for pid in workers] == [0, 0]
    for approval in Approval.objects.select_related("hold"):
        sent = Effect.objects.filter(approval=approval).exists()
        assert approval.hold is not None
        assert (approval.state, approval.hold.state, sent) in {
            ("consumed", "sent", True),
            ("superseded", "withdrawn", False),
        }
    assert verification.verify().ok


def test_the_same_policy_in_two_processes_makes_one_effect(kind: CountingKind) -> None:
    wish = factories.request()
    start, go = os.pipe()

    def work() -> None:
        os.read(start, 1)
        effect = approvals.approve_by_policy(request=wish, judgement=factories.ALLOWED)
        effects.dispatch(effect_id=effect.pk)

    workers = [forked(work) for _ in range(4)]
    os.write(go, b"....")
    assert [exit_of(pid) for pid in workers] == [0, 0, 0, 0]
    assert Effect.objects.count() == 1
    assert len(kind.contacts()) == 1


@pytest.mark.one_database
def test_consuming_outside_a_transaction_is_a_programming_error(kind: CountingKind) -> None:
    with pytest.raises(RuntimeError):
        approvals._consume_and_install(factories.opened())


def _dispatch(effect: Effect) -> None:
    effects.dispatch(effect_id=effect.pk)


def _stop_me() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _subject(effect: Effect) -> Subject:
    return Subject(effect.subject_type, effect.subject_id)

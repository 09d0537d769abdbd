"""Looks of real processes on one database: killed at each step, doubled, at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from approvals import registry, signals
from approvals.exceptions import ContactRefused
from approvals.models import Consent, Effect, Goal, Job, Observation, Root
from approvals.services import recovery
from approvals.types import Contact
from teams.services import verification
from tests.approvals import factories, looking
from tests.approvals.looking import CAPS, LookingKind
from tests.approvals.points import on_both
from tests.approvals.test_killed_workers import die_on, kill_at_unit
from tests.databases import exit_of, forked, kill_me, shared

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def kind(transactional_db: None, tmp_path: Path) -> Iterator[LookingKind]:
    """A kind under authority, on a database that processes share."""
    with shared(tmp_path):
        exact = LookingKind(tmp_path / "contacts", caps=CAPS, looks=looking.EXACT_LOOK)
        exact.bound = looking.bound(looking.connection())
        registry.register_kind(exact)
        yield exact
        registry.forget_kind(exact.name)


@pytest.fixture
def root(kind: LookingKind) -> Root:
    """The session that made the act and looks again."""
    return looking.session()


def ask(effect: Effect, root: Root) -> Job:
    return recovery.look_again(
        effect_id=effect.pk, by=factories.OPERATOR, root=root, request_id=looking.wish()
    )


def kill_at(kind: LookingKind, contact: Contact) -> None:
    """Die right after the provider has seen this contact."""
    kind.during = lambda made: made is contact and kill_me()


#: Where a looking worker dies; the contacts that the provider saw; what the look's job says then.
#: Units of a run: the claim, the check, one for each of five contacts, the record.
POINTS: dict[str, tuple[Callable[[LookingKind], None], int, str]] = {
    "before-claim-commits": (lambda kind: kill_at_unit(1), 0, ""),
    "before-check-commits": (lambda kind: kill_at_unit(2), 0, "lost"),
    "before-first-count-commits": (lambda kind: kill_at_unit(3), 0, "lost"),
    "after-first-contact": (lambda kind: kill_at(kind, Contact.REFRESH), 1, "lost"),
    "before-list-commits": (lambda kind: kill_at_unit(6), 3, "lost"),
    "after-list": (lambda kind: kill_at(kind, Contact.LIST), 4, "lost"),
    "after-last-contact": (lambda kind: kill_at(kind, Contact.GET), 5, "lost"),
    "before-record-commits": (lambda kind: kill_at_unit(8), 5, "lost"),
    "in-the-record": (lambda kind: die_on(signals.look_changed), 5, "lost"),
    "after-record": (lambda kind: kill_at_unit(9), 5, "verified_sent_observation"),
}
#: Beside a point that leaves the same, or between the first contact and the last: for the long run.
ALIKE = ("before-check-commits", "before-list-commits", "after-list", "before-record-commits")


@pytest.mark.invariant(20)
@pytest.mark.parametrize("point", on_both(POINTS, "in-the-record", soak=ALIKE))
def test_a_killed_look_leaves_all_of_its_record_or_nothing(
    kind: LookingKind, root: Root, point: str
) -> None:
    prepare, contacts, outcome = POINTS[point]
    effect = looking.unknown(kind, root)
    before = looking.columns(effect)
    job = ask(effect, root)

    def work() -> None:
        prepare(kind)
        recovery.run(job_id=job.pk)
        kill_me()

    assert exit_of(forked(work)) == -signal.SIGKILL
    kind.during = None
    recovery.settle_lost()
    job.refresh_from_db()
    assert (job.outcome, len(kind.looked())) == (outcome, contacts)
    for _ in range(2):  # a restart, and a duplicate of the task
        assert exit_of(forked(lambda: _run(job))) == 0
    job.refresh_from_db()
    done = outcome or "verified_sent_observation"
    assert (job.outcome, len(kind.looked())) == (done, contacts if outcome else 5)
    seen = done == "verified_sent_observation"
    assert Observation.objects.count() == seen
    assert looking.columns(effect) == {**before, "revision": effect.revision + seen}
    assert kind.posts() == 1
    if not seen:  # a deliberate new look is another grant
        again = recovery.run(job_id=ask(effect, root).pk)
        assert again.outcome == "verified_sent_observation"
        assert Consent.objects.filter(purpose="recover").count() == 2
    assert verification.verify().ok


def test_two_workers_make_one_look(kind: LookingKind, root: Root) -> None:
    looks = [ask(looking.unknown(kind, root), root) for _ in range(3)]
    start, go = os.pipe()

    def work() -> None:
        os.read(start, 1)
        for job in looks:
            recovery.run(job_id=job.pk)

    workers = [forked(work) for _ in range(3)]
    os.write(go, b"...")
    assert [exit_of(pid) for pid in workers] == [0, 0, 0]
    assert len(kind.looked()) == len(looks) * len(looking.EXACT_LOOK)
    assert Observation.objects.count() == len(looks)
    assert kind.posts() == len(looks)
    assert verification.verify().ok


def test_two_clicks_are_one_look_and_two_pages_are_told(kind: LookingKind, root: Root) -> None:
    effect = looking.unknown(kind, root)
    clicked, start, go = looking.wish(), *os.pipe()

    def click() -> None:
        os.read(start, 1)
        recovery.look_again(
            effect_id=effect.pk, by=factories.OPERATOR, root=root, request_id=clicked
        )

    def another_page() -> None:
        os.read(start, 1)
        try:
            ask(effect, root)
        except ContactRefused as refused:
            assert refused.reason == "look_running"

    workers = [forked(click), forked(click)]
    os.write(go, b"..")
    assert [exit_of(pid) for pid in workers] == [0, 0]
    assert Job.objects.filter(kind="recover").count() == 1
    recovery.run(job_id=Job.objects.get(kind="recover").pk)
    workers = [forked(another_page), forked(another_page)]
    os.write(go, b"..")
    assert [exit_of(pid) for pid in workers] == [0, 0]
    assert Job.objects.filter(kind="recover").count() == 2
    assert Goal.objects.filter(kind="look_again").count() == 2
    assert Consent.objects.filter(purpose="recover").count() == 2


def _run(job: Job) -> None:
    recovery.run(job_id=job.pk)

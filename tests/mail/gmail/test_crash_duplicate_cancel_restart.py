"""Crash, duplicate, cancel, restart: Google counts, and it was asked to send once at most."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import pytest
from django.db import connection

from approvals import signals
from approvals.exceptions import DigestMismatch
from approvals.models import Approval, Effect
from approvals.services import approvals, effects
from guards.exceptions import AlreadyDecided
from guards.signals import unit_closing
from tests.databases import exit_of, forked, kill_me
from tests.mail.gmail.world import OPERATOR, GmailWorld, spent
from tests.servers.google import GoogleServer

pytestmark = pytest.mark.timeout(300)


@dataclass
class Victim:
    """The process that is to die at a request: Google's own thread kills it."""

    known: threading.Event = field(default_factory=threading.Event)
    pid: int = 0

    def strike(self) -> None:
        """Called by the server while it answers; returns when the process is gone."""
        self.known.wait(30)
        os.kill(self.pid, signal.SIGKILL)
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)


def _at_unit(number: int) -> Callable[[], None]:
    """Die as the last thing inside the n-th transaction of the process, before it commits."""

    def prepare() -> None:
        seen: list[int] = []

        def count(**_: object) -> None:
            seen.append(1)
            if len(seen) == number:
                kill_me()

        unit_closing.connect(count, weak=False)

    return prepare


def _on(announced: object) -> Callable[[], None]:
    return lambda: announced.connect(lambda **_: kill_me(), weak=False)  # type: ignore[attr-defined]


#: Where a worker dies: before or after what Google answers, in a transaction, or at a signal; the
#: phase that remains; and how often Google was asked to send.
POINTS: dict[str, tuple[str | Callable[[], None], str, int]] = {
    "before the claim is committed": (_at_unit(1), "intent", 0),
    "before the first refresh is counted": (_at_unit(2), "cancelled", 0),
    "while the first token comes": ("after token", "cancelled", 0),
    "while Google says whose it is": ("after userinfo", "cancelled", 0),
    "while the mailbox is asked for": ("before profile", "cancelled", 0),
    "while the source is read": ("after thread", "cancelled", 0),
    "before the mark is committed": (_at_unit(8), "cancelled", 0),
    "after the mark": (_on(signals.contact_claimed), "unknown", 0),
    "as the authority is looked at once more": (_at_unit(9), "unknown", 0),
    "as the post arrives": ("before send", "unknown", 1),
    "as the post is answered": ("after send", "unknown", 1),
    "before the read-back is counted": (_at_unit(10), "unknown", 1),
    "while the copy is read": ("after message", "unknown", 1),
    "after the read-back": (_on(signals.contact_returned), "unknown", 1),
    "before the record is committed": (_at_unit(11), "unknown", 1),
}
#: What a transaction or a commit leaves there; what Google answers is the same on every database.
ON_BOTH = (
    "before the claim is committed",
    "after the mark",
    "as the post is answered",
    "before the record is committed",
)
#: Read like another that stays: a question before the mark, and what follows the answered post.
BETWEEN = (
    "while Google says whose it is",
    "while the mailbox is asked for",
    "before the read-back is counted",
)


def _work(effect: Effect) -> None:
    effects.dispatch(effect_id=effect.pk)


@pytest.mark.invariant(19)
@pytest.mark.fault("send-01", "send-02")
@pytest.mark.parametrize(
    "points",
    [
        pytest.param([one for one in POINTS if one not in BETWEEN], id="each step"),
        pytest.param(BETWEEN, id="between them", marks=pytest.mark.soak),
    ],
)
def test_a_crash_leaves_the_same_row_and_no_further_post(
    shared_world: GmailWorld,
    google_server: GoogleServer,
    points: Collection[str],
    subtests: pytest.Subtests,
):
    for point in points if connection.vendor == "sqlite" else ON_BOTH:
        with subtests.test(point):
            _crash(shared_world, google_server, *POINTS[point])


def _crash(
    world: GmailWorld, server: GoogleServer, where: str | Callable[[], None], phase: str, posts: int
) -> None:
    effect = world.approve()
    world.google.contacts.clear()
    victim = Victim()
    if isinstance(where, str):
        moment, endpoint = where.split(" ")
        getattr(server, moment)[endpoint] = victim.strike
    victim.pid = forked(lambda: (where() if callable(where) else None, _work(effect)))
    victim.known.set()
    assert exit_of(victim.pid) == -signal.SIGKILL
    effects.reconcile()
    effect.refresh_from_db()
    assert effect.phase == phase
    assert world.google.posts == posts
    counted = spent(effect.consent)
    assert exit_of(forked(lambda: _work(effect))) == 0  # a restart: the same row is found
    effects.reconcile()
    _work(effect)  # and once more, by whoever reconciled
    effect.refresh_from_db()
    if phase == "intent":
        assert (effect.phase, world.google.posts) == ("verified", 1)
        return
    assert (effect.phase, world.google.posts) == (phase, posts)
    assert spent(effect.consent) == counted
    assert (effect.contact_marked_at is not None) == (phase == "unknown")


@pytest.mark.invariant(19)
@pytest.mark.fault("send-04", "queue-05")
def test_two_workers_post_once(shared_world: GmailWorld):
    effect = shared_world.approve()
    start, go = os.pipe()

    def work() -> None:
        os.read(start, 1)
        _work(effect)

    workers = [forked(work) for _ in range(3)]
    os.write(go, b"...")
    assert [exit_of(pid) for pid in workers] == [0, 0, 0]
    effect.refresh_from_db()
    assert (effect.phase, shared_world.google.posts) == ("verified", 1)
    assert len(shared_world.sent()) == 1


def test_one_canonical_intent_and_approval_for_two_clicks_at_once(shared_world: GmailWorld):
    approval = shared_world.open()
    start, go = os.pipe()

    def work() -> None:
        os.read(start, 1)
        _work(shared_world.approve(approval))

    workers = [forked(work) for _ in range(2)]
    os.write(go, b"..")
    assert [exit_of(pid) for pid in workers] == [0, 0]
    effect = Effect.objects.get()
    approval.refresh_from_db()
    assert approval.state == Approval.State.CONSUMED
    assert (effect.phase, shared_world.google.posts) == ("verified", 1)


@pytest.mark.django_db
def test_one_canonical_intent_a_second_yes_gets_the_first_and_another_digest_none(
    world: GmailWorld,
):
    approval = world.open()
    effect = world.approve(approval)
    assert world.approve(approval).pk == effect.pk
    with pytest.raises(DigestMismatch):
        approvals.approve(
            approval_id=approval.pk, by=OPERATOR, via="console", digest="0" * 64, root=world.root
        )
    assert world.dispatch(effect).phase == "verified"
    assert world.approve(approval).pk == effect.pk
    assert world.google.posts == 1


@pytest.mark.one_database
@pytest.mark.django_db
def test_a_cancelled_intent_contacts_nobody(world: GmailWorld):
    effect = world.approve()
    world.google.contacts.clear()
    effects.cancel(effect_id=effect.pk, by=OPERATOR, reason="no longer")
    assert world.dispatch(effect).phase == Effect.Phase.CANCELLED
    assert world.google.contacts == []


@pytest.mark.one_database
@pytest.mark.django_db
def test_what_was_posted_cannot_be_cancelled(world: GmailWorld, google_server: GoogleServer):
    effect = world.approve()
    google_server.fault("send.reset-after")
    assert world.dispatch(effect).phase == Effect.Phase.UNKNOWN
    with pytest.raises(AlreadyDecided):
        effects.cancel(effect_id=effect.pk, by=OPERATOR, reason="too late")
    effect.refresh_from_db()
    assert effect.phase == Effect.Phase.UNKNOWN

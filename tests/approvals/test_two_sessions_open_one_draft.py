"""Two operators open the same draft at once: one snapshot stands, and neither waits for ever."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from approvals import registry
from approvals.exceptions import ContactRefused
from approvals.models import Approval, Goal, Root
from approvals.services import authority, holds
from guards.types import Asker
from tests.approvals import factories, sessions
from tests.approvals.sessions import GuardedKind
from tests.databases import exit_of, forked, shared

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def kind(transactional_db: None, tmp_path: Path) -> Iterator[GuardedKind]:
    """A kind under authority, on a database that processes share."""
    with shared(tmp_path):
        guarded = GuardedKind(tmp_path / "contacts")
        registry.register_kind(guarded)
        yield guarded
        registry.forget_kind(guarded.name)


def open_slowly(hold_id: object, root: Root) -> None:
    """Open it, and dawdle wherever the own goal was locked: there the other one comes in."""
    required = authority.require_goal

    def dawdle(*args: object, **named: object) -> Goal:
        goal = required(*args, **named)  # type: ignore[arg-type]
        time.sleep(0.15)
        return goal

    by = Asker(*root.principal.split(":"))
    with mock.patch.object(authority, "require_goal", dawdle):
        try:
            holds.open_for_review(hold_id=str(hold_id), by=by, root=root)
        except ContactRefused as refused:
            assert refused.reason == "goal_closed"  # the other one was first


@pytest.mark.only_on("postgresql")  # elsewhere nothing locks a row
def test_two_sessions_that_open_one_draft_lock_its_goals_in_one_order(kind: GuardedKind) -> None:
    roots = [sessions.session("ada"), sessions.session("bob")]
    hold_id = factories.held(kind="tests.guarded", account=sessions.ACCOUNT).pk
    start, go = os.pipe()

    def work(root: Root) -> None:
        os.read(start, 1)
        open_slowly(hold_id, root)

    workers = [forked(lambda root=root: work(root)) for root in roots]  # type: ignore[misc]
    os.write(go, b"..")
    assert [exit_of(pid) for pid in workers] == [0, 0]
    pending = Approval.objects.get(state=Approval.State.PENDING)
    assert list(Goal.objects.filter(closed_at=None)) == [pending.goal]

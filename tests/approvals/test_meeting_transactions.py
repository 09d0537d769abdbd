"""Transactions that meet on one act, its grant and its session: each ends, none waits for ever."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.db import DatabaseError, connection

from approvals import registry
from approvals.models import Approval, Consent, ContactBudget, Effect, Root
from approvals.services import (
    approvals,
    connections,
    consents,
    effects,
    goals,
    holds,
    roots,
)
from approvals.types import ContactOutcome, ContactResult
from guards.exceptions import CountersignError
from teams.services import verification
from tests.approvals import factories, sessions
from tests.approvals.sessions import GuardedKind, ScriptedProvider
from tests.databases import exit_of, forked, shared

pytestmark = pytest.mark.django_db(transaction=True)

ACTS = 6


@pytest.fixture
def kind(transactional_db: None, tmp_path: Path) -> Iterator[GuardedKind]:
    provider = ScriptedProvider()
    with shared(tmp_path):
        guarded = GuardedKind(
            tmp_path / "contacts", seen=ContactResult(ContactOutcome.VERIFIED, "sent_copy_matches")
        )
        registry.register_kind(guarded)
        registry.register_provider(provider)
        yield guarded
        registry.forget_kind(guarded.name)
        registry.forget_provider(provider.account_type)


@pytest.fixture
def root(kind: GuardedKind, tmp_path: Path) -> Root:
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    made = sessions.session()
    connections.import_connection(
        account=sessions.ACCOUNT,
        use="read",
        client_id="client",
        client_secret_ref=f"file:{secret}",
        refresh_token_ref=f"file:{secret}",
        by=factories.OPERATOR,
        root=made,
    )
    return made


def together(*works: Callable[[], object]) -> list[int]:
    """Run them in processes of their own that begin at once; their exit codes."""
    start, go = os.pipe()

    def waiting(work: Callable[[], object]) -> Callable[[], None]:
        def begin() -> None:
            os.read(start, 1)
            _impatient()
            work()

        return begin

    workers = [forked(waiting(work)) for work in works]
    os.write(go, b"." * len(workers))
    return [exit_of(pid) for pid in workers]


def _impatient() -> None:
    """A lock that is never given is an error, not a test that hangs; a deadlock is one anyway."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '60s'")


def each(rows: list[object], act: Callable[[object], object]) -> Callable[[], None]:
    """Do it to each in an order of its own; refusals are answers, the database's errors are not."""

    def work() -> None:
        mixed = list(rows)
        random.Random(os.getpid()).shuffle(mixed)
        for row in mixed:
            try:
                act(row)
            except CountersignError:
                continue
            except DatabaseError:
                raise

    return work


def test_whoever_meets_on_one_act_comes_to_an_end(kind: GuardedKind, root: Root) -> None:
    """Two workers, a sweep, revoked grants, closed goals and a revoked session, all at once."""
    intents: list[object] = [sessions.intent(root).pk for _ in range(ACTS)]
    grants: list[object] = list(Consent.objects.filter(purpose="execute").values_list("pk"))

    def dispatch(pk: object) -> None:
        effects.dispatch(effect_id=str(pk))

    def revoke(row: object) -> None:
        consents.revoke(consent_id=row[0], by=factories.OPERATOR)  # type: ignore[index]

    def close(pk: object) -> None:
        goal = Effect.objects.select_related("goal").get(pk=str(pk)).goal
        assert goal is not None
        goals.close(goal)

    def sweep(_: object) -> None:
        effects.reconcile()
        approvals.expire_due()

    ends = together(
        each(intents, dispatch),
        each(intents, dispatch),
        each(grants, revoke),
        each(intents, close),
        each(intents, sweep),
        lambda: roots.revoke(root_id=root.pk, by=factories.OPERATOR),
    )
    assert ends == [0] * 6
    effects.reconcile()
    marked = Effect.objects.exclude(contact_marked_at=None).count()
    assert kind.posts() <= marked <= ACTS
    assert not Effect.objects.filter(phase__in=Effect.OUTSTANDING).exists()
    assert all(budget.spent <= budget.cap for budget in ContactBudget.objects.all())
    assert verification.verify().ok


def test_a_yes_meets_whatever_would_void_it(kind: GuardedKind, root: Root) -> None:
    """Clicks, a withdrawal, a new snapshot, and the connection being taken away beneath them."""
    pages: list[object] = [sessions.opened(root) for _ in range(ACTS)]
    made = sessions.Connection.objects.get()

    def click(page: object) -> None:
        assert isinstance(page, Approval)
        sessions.approve(page, root)

    def withdraw(page: object) -> None:
        assert isinstance(page, Approval)
        holds.withdraw(hold_id=page.hold_id, by=factories.AGENT, reason="no longer")

    def reopen(page: object) -> None:
        assert isinstance(page, Approval)
        holds.open_for_review(hold_id=page.hold_id, by=factories.OPERATOR, root=root)

    def refuse(page: object) -> None:
        assert isinstance(page, Approval)
        approvals.reject(approval_id=page.pk, by=factories.OPERATOR, via="console", reason="not so")

    ends = together(
        each(pages, click),
        each(pages, click),
        each(pages, withdraw),
        each(pages, reopen),
        each(pages, refuse),
        lambda: connections.revoke(
            connection_id=made.pk, by=factories.OPERATOR, reason="it leaked"
        ),
    )
    assert ends == [0] * 6
    consumed = Approval.objects.filter(state=Approval.State.CONSUMED).count()
    assert Effect.objects.count() == consumed
    assert not Approval.objects.filter(state__in=Approval.OPEN).exists()
    for effect in Effect.objects.all():
        effects.dispatch(effect_id=effect.pk)
    assert kind.posts() == 0  # the connection is gone, whoever was first
    assert verification.verify().ok

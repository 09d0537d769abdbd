"""Goals: what a person of a live session set out to do, and the one job that does it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from uuid import UUID, uuid4

from django.db.models import F

from approvals import signals
from approvals.clock import database_now
from approvals.exceptions import Blocked, ContactRefused
from approvals.models import Goal, Job, Root
from approvals.services import authority, consents, jobs
from approvals.types import BoundConnection, Contact, Grant, Purpose
from guards.services.units import unit_of_work
from guards.types import SYSTEM, Asker, Subject


def begin(
    *, root: Root, by: Asker, kind: Goal.Kind, about: Subject, goal_id: UUID | None = None
) -> Goal:
    """A new goal of a live session; ContactRefused where it is over, revoked or another's.

    `goal_id` is the name of a wish that may be said twice. Joins the caller's transaction.
    """
    with unit_of_work():
        live = authority.require_root(root.pk)
        if live.principal != str(by):
            raise ContactRefused(authority.SESSION_UNAVAILABLE, field="root")
        goal = Goal.objects.create(
            id=goal_id or uuid4(),
            root=live,
            principal=live.principal,
            kind=kind,
            about_type=about.type,
            about_id=about.id,
            created_at=database_now(),
        )
        signals.goal_changed.send(sender=Goal, goal=goal, change="begun", by=str(by))
    return goal


def close(goal: Goal) -> None:
    """It is done, or given up: what was granted for it ends. Joins the caller's transaction."""
    _end(goal, "closed_at", "closed")


def close_about(about: Subject, *, but: Goal | None = None) -> None:
    """Close every open goal about something, `but` one. Joins the caller's transaction, which has
    locked nothing of approvals yet but sessions.
    """
    still_open = Goal.objects.select_for_update().filter(
        about_type=about.type, about_id=about.id, closed_at=None
    )
    for goal in still_open.order_by("created_at", "pk"):
        if but is None or goal.pk != but.pk:
            close(goal)


def delete(goal: Goal) -> None:
    """Take it out of sight, softly: what looked under it stays blocked with that reason."""
    _end(goal, "deleted_at", "deleted")


def _end(goal: Goal, column: str, change: str) -> None:
    with unit_of_work():
        moved = Goal.objects.filter(pk=goal.pk, **{column: None}).update(
            **{column: database_now()}, revision=F("revision") + 1
        )
        goal.refresh_from_db(fields=[column, "revision"])
        if moved:
            signals.goal_changed.send(sender=Goal, goal=goal, change=change, by=str(SYSTEM))


@contextmanager
def granted_job(
    *,
    kind: Job.Kind,
    purpose: Purpose,
    goal: Goal,
    caps: Mapping[Contact, int],
    connections: Sequence[BoundConnection],
) -> Iterator[Grant]:
    """One job of this process under a fresh finite grant; quiesced and finished when it is left.

    Outside any transaction: what happens inside contacts a provider.
    """
    with unit_of_work(durable=True):
        authority.require_root(goal.root_id)
        authority.require_goal(goal.pk, root_id=goal.root_id, revision=goal.revision)
        expires_at = database_now() + timedelta(seconds=jobs.DEADLINE_SECONDS)
        consent = consents.grant(
            purpose=purpose, goal=goal, caps=caps, expires_at=expires_at, connections=connections
        )
        created = jobs.create(kind=kind, consent=consent)
        job = jobs.claim(created.pk)
    if job is None:
        raise ContactRefused(authority.JOB_NOT_HELD, field="job")
    outcome, reason = "failed", ""
    try:
        yield consents.JobGrant(job)
        outcome = "done"
    except (Blocked, ContactRefused) as error:
        outcome, reason = "blocked", error.reason
        raise
    finally:
        jobs.quiesce(job)
        with unit_of_work():
            jobs.finish(job, outcome=outcome, reason=reason)

"""Goals: what a person of a live session set out to do, and the one job that does it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from uuid import UUID, uuid4

from django.db.models import F

from approvals.clock import database_now
from approvals.exceptions import ContactRefused
from approvals.models import Goal, Job, Root
from approvals.services import authority, consents, jobs
from approvals.types import BoundConnection, Contact, Grant, Purpose
from guards.services.units import unit_of_work
from guards.types import Asker, Subject


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
        return Goal.objects.create(
            id=goal_id or uuid4(),
            root=live,
            principal=live.principal,
            kind=kind,
            about_type=about.type,
            about_id=about.id,
            created_at=database_now(),
        )


def close(goal: Goal) -> None:
    """It is done, or given up: what was granted for it ends. Joins the caller's transaction."""
    with unit_of_work():
        Goal.objects.filter(pk=goal.pk, closed_at=None).update(
            closed_at=database_now(), revision=F("revision") + 1
        )
        goal.refresh_from_db(fields=["closed_at", "revision"])


def delete(goal: Goal) -> None:
    """Take it out of sight, softly: what looked under it stays blocked with that reason."""
    with unit_of_work():
        Goal.objects.filter(pk=goal.pk, deleted_at=None).update(
            deleted_at=database_now(), revision=F("revision") + 1
        )
        goal.refresh_from_db(fields=["deleted_at", "revision"])


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
        expires_at = database_now() + timedelta(seconds=jobs.DEADLINE_SECONDS)
        consent = consents.grant(
            purpose=purpose, goal=goal, caps=caps, expires_at=expires_at, connections=connections
        )
        created = jobs.create(kind=kind, consent=consent)
        job = jobs.claim(created.pk)
    if job is None:
        raise ContactRefused("job_not_held", field="job")
    outcome = "failed"
    try:
        yield consents.JobGrant(job)
        outcome = "done"
    finally:
        jobs.quiesce(job)
        with unit_of_work():
            jobs.finish(job, outcome=outcome)

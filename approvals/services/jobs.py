"""Jobs: one attempt of one process. Claimed once, quiesced, finished; never taken over."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from django.db.models import F, Q

from approvals.clock import database_now
from approvals.models import Consent, Effect, Goal, Job, Root
from guards import process
from guards.services.units import unit_of_work

#: How long one job may take from its claim to its record (ADR-016). Kinds time out well before.
DEADLINE_SECONDS = 120


def create(
    *,
    kind: Job.Kind,
    consent: Consent | None = None,
    looks_at: Effect | None = None,
    holder: str = "",
) -> Job:
    """A job that nobody has begun; with a holder, one that only that process may begin.

    Joins the caller's transaction.
    """
    now = database_now()
    return Job.objects.create(
        kind=kind,
        consent=consent,
        looks_at=looks_at,
        holder=holder,
        deadline=now + timedelta(seconds=DEADLINE_SECONDS) if holder else None,
        created_at=now,
    )


def claim(job_id: UUID) -> Job | None:
    """Begin the one attempt; None when somebody has, or another process was meant to.

    Joins the caller's transaction.
    """
    me, now = process.this_process(), database_now()
    deadline = now + timedelta(seconds=DEADLINE_SECONDS)
    mine = Job.objects.filter(Q(holder="") | Q(holder=me), pk=job_id, attempts=0, finished_at=None)
    # The deadline of a job that was installed for this process runs since then.
    job = mine.first()
    if job is None:
        return None
    taken = mine.filter(fence=job.fence).update(
        holder=me,
        fence=F("fence") + 1,
        attempts=1,
        claimed_at=now,
        deadline=job.deadline or deadline,
    )
    return Job.objects.get(pk=job_id) if taken == 1 else None


def lock(job: Job) -> None:
    """Lock a job after all that its grant rests on, in the house's order, to end both together.

    Inside the caller's transaction, before it locks anything else of approvals.
    """
    if job.consent_id is not None:
        grant = Consent.objects.get(pk=job.consent_id)
        Root.objects.select_for_update().get(pk=grant.root_id)
        Goal.objects.select_for_update().get(pk=grant.goal_id)
        Consent.objects.select_for_update().get(pk=grant.pk)
    Job.objects.select_for_update().get(pk=job.pk)


def quiesce(job: Job) -> None:
    """The transport of this attempt is closed: nothing of it can still arrive."""
    with unit_of_work():
        Job.objects.filter(pk=job.pk, fence=job.fence, quiesced_at=None).update(
            quiesced_at=database_now()
        )


def finish(job: Job, *, outcome: str, reason: str = "") -> bool:
    """Write the result down, once; False when it was finished before. Joins the transaction."""
    now = database_now()
    moved = Job.objects.filter(pk=job.pk, fence=job.fence, finished_at=None).update(
        finished_at=now, outcome=outcome, reason=reason[:64]
    )
    return moved == 1


def settle_lost() -> int:
    """Finish connecting and preview jobs whose process died or ran out of time; how many.

    What they contacted stays counted. Jobs of acts and of later looks end with what they are about.
    """
    held = Job.objects.filter(kind__in=(Job.Kind.CONNECT, Job.Kind.PREVIEW), finished_at=None)
    return sum(_finish_lost(job) for job in held if why_lost(job))


def why_lost(job: Job) -> str | None:
    """Why nobody will end a claimed job any more; None while somebody may. Asks for processes:
    outside any transaction.
    """
    if process.is_dead(job.holder):
        return "worker-lost"
    if job.deadline is not None and job.deadline <= database_now():
        return "deadline-passed"
    return "attempt-ended" if job.quiesced_at is not None else None


def _finish_lost(job: Job) -> bool:
    reason = why_lost(job) or ""
    with unit_of_work(durable=True):
        return finish(job, outcome="lost", reason=reason)


def is_settled(job: Job) -> bool:
    """Whether nothing of it can still arrive: quiesced, or its process is provably dead."""
    return job.quiesced_at is not None or bool(job.holder and process.is_dead(job.holder))

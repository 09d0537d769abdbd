"""Look again at an act of unknown outcome: read-only, under a goal and a finite grant of its own.

One transaction appends what was seen, raises the effect's revision and ends the look's job. The
original keeps everything else: phase, status, deadline, authority, approval (ADR-016). A look is
one attempt of one process: a duplicate reads its result, a crash leaves it `lost`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

import rfc8785
from django.db.models import F, Q

from approvals import freezing, registry, signals
from approvals.clock import database_now
from approvals.exceptions import Blocked, ContactRefused
from approvals.models import Consent, Effect, Goal, Job, Observation, Root
from approvals.services import authority, consents, goals, jobs, people, standing
from approvals.services.details import storable
from approvals.types import (
    Act,
    BoundConnection,
    Contact,
    ContactOutcome,
    ContactResult,
    Purpose,
)
from guards import process, queue
from guards.exceptions import Conflict, CountersignError, InvalidInput, NotFound
from guards.services.units import unit_of_work
from guards.types import Asker, Subject

logger = logging.getLogger(__name__)

#: What a look found. Neither says that the recipient has it, or that he has not.
VERIFIED_SENT = "verified_sent_observation"
UNKNOWN_STILL = "unknown_observation"
#: A look that ended before its first contact, and one that ended without a record of its own.
BLOCKED = "blocked"
LOST = "lost"

#: Every word that this module says itself: results, and reasons why there is none.
WORDS = frozenset(
    {
        *(VERIFIED_SENT, UNKNOWN_STILL, BLOCKED, LOST),
        *("nothing_to_look_at", "never-begun", "worker-lost", "deadline-passed"),
        *standing.WORDS,
    }
)
#: For kinds that look without naming their own figures: one list, five candidates.
USUAL_CAPS: Mapping[Contact, int] = {Contact.LIST: 1, Contact.GET: 5}
#: A look that no worker has claimed for this long is put onto the queue again.
OVERDUE = timedelta(seconds=20)


def look_again(
    *, effect_id: UUID | str, by: Asker, root: Root | None, request_id: UUID | str
) -> Job:
    """Grant one look at an act of unknown outcome, and put it onto the queue; its job.

    `request_id` names the wish: minted once for a page, it gives the same job however often it is
    sent. Another look needs another one, and is another finite grant. Raises NotFound, NotAPerson,
    InvalidInput, ContactRefused with the reason why nobody may look (then nothing is contacted),
    Conflict where the name was used for something else.
    """
    people.require_person(by)
    wish = _request_id(request_id)
    effect = _found(effect_id)
    earlier = _of_request(wish, effect, root)
    if earlier is not None:
        return earlier
    standing.require_unknown(effect)
    standing.require_quiet(effect)
    _settle(Job.objects.filter(looks_at=effect))
    with unit_of_work(durable=True):
        return _grant_look(effect, by=by, root=root, wish=wish)


def why_not(*, effect_id: UUID | str, by: Asker, root: Root | None) -> ContactRefused | None:
    """Why a look would be refused now, or None. Looks at our own tables and contacts nobody."""
    effect = _found(effect_id)
    try:
        standing.require_unknown(effect)
        standing.require_quiet(effect)
        with unit_of_work():
            _require_lookable(effect, by=by, root=root)
            standing.require_no_other_look(effect)
    except ContactRefused as refused:
        return refused
    return None


def run(*, job_id: UUID | str) -> Job:
    """Make the one attempt of a look, if this call is the one that may; the job as it stands.

    Whoever comes later finds the result and contacts nobody.
    """
    job = _claim(job_id)
    if job is None:
        return _job(job_id)
    try:
        _look(job)
    finally:
        jobs.quiesce(job)
    return _job(job_id)


def settle_lost() -> int:
    """End looks whose process is gone or late, and those that nobody began in time; how many.

    What they have contacted stays counted; another look is another grant.
    """
    return _settle(Job.objects.all())


def enqueue_due(*, overdue: timedelta = OVERDUE) -> int:
    """Put looks that no worker has claimed onto the queue again; how many there were."""
    now = database_now()
    waiting = Job.objects.filter(
        kind=Job.Kind.RECOVER,
        holder="",
        finished_at=None,
        created_at__lte=now - overdue,
        consent__expires_at__gt=now,
    )
    due = list(waiting.values_list("pk", flat=True))
    for job_id in due:
        queue.enqueue("approvals.tasks.look_again", str(job_id))
    return len(due)


def _grant_look(effect: Effect, *, by: Asker, root: Root | None, wish: UUID) -> Job:
    """Inside the transaction: everything that must hold, then goal, grant and job together."""
    bound, live = _require_lookable(effect, by=by, root=root)
    crossed = _of_request(wish, effect, live)
    if crossed is not None:  # the other click was first
        return crossed
    standing.require_no_other_look(effect)
    goal = goals.begin(
        root=live,
        by=by,
        kind=Goal.Kind.LOOK_AGAIN,
        about=Subject("approvals.effect", str(effect.pk)),
        goal_id=wish,
    )
    consent = consents.grant(
        purpose=Purpose.RECOVER,
        goal=goal,
        caps=_caps(effect.kind),
        expires_at=database_now() + timedelta(seconds=jobs.DEADLINE_SECONDS),
        connections=bound,
        effect=effect,
        request_digest=_request_digest(effect, by=by, root=live, bound=bound, wish=wish),
    )
    job = jobs.create(kind=Job.Kind.RECOVER, consent=consent, looks_at=effect)
    signals.look_changed.send(sender=Job, job=job, effect=effect, change="asked", by=str(by))
    queue.enqueue("approvals.tasks.look_again", str(job.pk))
    return job


def _require_lookable(
    effect: Effect, *, by: Asker, root: Root | None
) -> tuple[Sequence[BoundConnection], Root]:
    """Root → goal → connections → effect, each locked: the connections and the session to use."""
    live = standing.require_looker(effect, by=by, root=root)
    standing.require_origin(effect)
    try:
        bound = registry.act(effect.kind).connections(freezing.subject_of(effect), Purpose.RECOVER)
    except Blocked as blocked:
        raise ContactRefused(blocked.reason, field=blocked.field or "") from blocked
    standing.require_same_connections(effect, bound)
    Effect.objects.select_for_update(of=("self",)).get(pk=effect.pk)
    return bound, live


def _look(job: Job) -> None:
    """One look: everything is checked, somebody is asked, everything is checked again."""
    effect = _found(job.looks_at_id or "")
    before = standing.picture(effect)
    try:
        standing.require_quiet(effect)
        with unit_of_work(durable=True):
            _require_standing(job, effect)
    except ContactRefused as refused:
        _give_up(job, effect, BLOCKED, refused)
        return
    result = _seen(effect, job)
    try:
        _record(job, effect, before, result)
    except ContactRefused as refused:
        _give_up(job, effect, LOST, refused)


def _seen(effect: Effect, job: Job) -> ContactResult:
    """What the kind found, outside any transaction. What it raises proves nothing."""
    try:
        kind = registry.act(effect.kind)
        payload, facts = freezing.open_intent(effect)
        subject = freezing.subject_of(effect)
        act = Act(effect.pk, subject, payload, facts, consents.JobGrant(job))
        found = kind.look_again(act)
    except ContactRefused as error:
        return _unknown(error.reason, {"field": error.field or ""})
    except CountersignError as error:
        return _unknown(error.code, {"field": error.field or ""})
    except Exception as error:
        logger.exception("looking at effect %s again raised", effect.pk)
        return _unknown("look-raised", {"error": type(error).__name__})
    return found if found is not None else _unknown("nothing_to_look_at")


def _record(job: Job, effect: Effect, before: dict[str, Any], result: ContactResult) -> None:
    """The one transaction: observation, revision, and the look's result; or none of them.

    Neither an effect that moved meanwhile nor an authority that ended gets an observation.
    """
    is_proved = result.outcome is ContactOutcome.VERIFIED
    outcome = VERIFIED_SENT if is_proved else UNKNOWN_STILL
    with unit_of_work(durable=True):
        consent = _require_standing(job, effect)
        locked = Effect.objects.select_for_update(of=("self",)).select_related("job")
        standing.require_unmoved(before, locked.get(pk=effect.pk))
        now = database_now()
        Effect.objects.filter(pk=effect.pk, revision=effect.revision).update(
            revision=F("revision") + 1
        )
        Observation.objects.create(
            effect=effect,
            job=job,
            at=now,
            observer=consent.root.principal,
            outcome=outcome,
            detail={**storable(result.detail), "reason": result.reason},
        )
        if not _end(job, effect, consent, outcome, result.reason):
            raise ContactRefused("job_not_held", field="job")


def _require_standing(job: Job, effect: Effect) -> Consent:
    """The whole authority of a look, and the original that it is about; the grant."""
    granted = _grant_of(job)
    principal = Asker(*granted.root.principal.partition(":")[::2])
    standing.require_looker(effect, by=principal, root=granted.root)
    standing.require_origin(effect)
    consent = authority.require(consent_id=granted.pk, job=job)
    standing.require_unknown(effect)
    return consent


def _give_up(job: Job, effect: Effect, outcome: str, refused: ContactRefused) -> None:
    """The look ends without an observation: it had no right to one."""
    with unit_of_work(durable=True):
        jobs.lock(job)
        _end(job, effect, _grant_of(job), outcome, refused.reason)


def _grant_of(job: Job) -> Consent:
    """Each look has one: the database holds that."""
    return Consent.objects.select_related("root", "goal").get(job=job)


def _end(job: Job, effect: Effect, consent: Consent, outcome: str, reason: str) -> bool:
    """The look's result, once, with its goal; False when it was ended before."""
    if not jobs.finish(job, outcome=outcome, reason=reason):
        return False
    job.outcome, job.reason = outcome, reason[:64]
    goals.close(consent.goal)
    signals.look_changed.send(
        sender=Job, job=job, effect=effect, change="ended", by=consent.root.principal
    )
    return True


def _settle(among: Any) -> int:
    unfinished = among.filter(kind=Job.Kind.RECOVER, finished_at=None)
    now = database_now()
    over = Q(deadline__lte=now) | Q(consent__expires_at__lte=now) | ~Q(holder="")
    found = unfinished.filter(over).select_related("consent__root", "consent__goal", "looks_at")
    return sum(_settle_one(job, why) for job in found if (why := _lost(job, now)))


def _settle_one(job: Job, why: str) -> bool:
    consent, effect = job.consent, job.looks_at
    if consent is None or effect is None:
        return False
    with unit_of_work(durable=True):
        jobs.lock(job)
        return _end(job, effect, consent, LOST, why)


def _lost(job: Job, now: Any) -> str | None:
    if not job.holder:
        expired = job.consent is not None and job.consent.expires_at <= now
        return "never-begun" if expired else None
    if process.is_dead(job.holder):
        return "worker-lost"
    if job.deadline is not None and job.deadline <= now:
        return "deadline-passed"
    return None


def _claim(job_id: UUID | str) -> Job | None:
    with unit_of_work(durable=True):
        job = _job(job_id)
        return jobs.claim(job.pk)


def _caps(kind: str) -> dict[Contact, int]:
    """What a look may contact: the kind's own figures. Never a post."""
    caps = registry.caps(kind, Purpose.RECOVER) or USUAL_CAPS
    return {contact: cap for contact, cap in caps.items() if contact is not Contact.POST}


def _request_digest(
    effect: Effect, *, by: Asker, root: Root, bound: Sequence[BoundConnection], wish: UUID
) -> str:
    """SHA-256, hex, over what exactly was asked for: one grant of an effect for each."""
    document: dict[str, Any] = {
        "effect": str(effect.pk),
        "digest": effect.digest,
        "principal": str(by),
        "root": str(root.pk),
        "connections": [{"id": str(one.id), "revision": one.revision} for one in bound],
        "request": str(wish),
    }
    return sha256(rfc8785.dumps(document)).hexdigest()


def _of_request(wish: UUID, effect: Effect, root: Root | None) -> Job | None:
    """The job that this very wish has already; Conflict where it was a wish for something else."""
    goal = Goal.objects.filter(pk=wish).first()
    if goal is None:
        return None
    job = Job.objects.filter(consent__goal=goal, looks_at=effect).first()
    if job is None or root is None or goal.root_id != root.pk:
        raise Conflict(
            "this request_id was used for something else: load the page again", field="request_id"
        )
    return job


def _request_id(request_id: UUID | str) -> UUID:
    try:
        return request_id if isinstance(request_id, UUID) else UUID(request_id)
    except ValueError:
        raise InvalidInput("a look is asked for with a UUID", field="request_id") from None


def _unknown(reason: str, detail: Mapping[str, object] | None = None) -> ContactResult:
    return ContactResult(ContactOutcome.UNKNOWN, reason, detail or {})


def _found(effect_id: UUID | str) -> Effect:
    rows = Effect.objects.select_related("job", "consent", "root")
    found = rows.filter(pk=effect_id).first()
    if found is None:
        raise NotFound(f"there is no effect {effect_id}", field="effect")
    return found


def _job(job_id: UUID | str) -> Job:
    rows = Job.objects.select_related("consent__goal", "consent__root")
    found = rows.filter(pk=job_id, kind=Job.Kind.RECOVER).first()
    if found is None:
        raise NotFound(f"there is no look {job_id}", field="job")
    return found

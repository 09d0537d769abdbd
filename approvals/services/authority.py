"""Authority, looked at as a whole: session, goal, grant, connections, job, in this lock order.

Called inside a transaction, database only. Whatever is over or was changed is a ContactRefused with
its own stable reason; `field` names what does not hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

import rfc8785

from approvals.clock import database_now
from approvals.exceptions import ContactRefused
from approvals.models import Approval, Connection, Consent, Effect, Goal, Job, Root
from guards import process

#: What a session's end is called, and what its revocation is: never the same word (ADR-016).
SESSION_UNAVAILABLE = "session_unavailable"
AUTHORITY_REVOKED = "authority_revoked"
JOB_NOT_HELD = "job_not_held"


def require(*, consent_id: UUID, job: Job) -> Consent:
    """The grant, if everything that it rests on still stands and `job` is held by this process."""
    if job.consent_id != consent_id:
        raise ContactRefused(JOB_NOT_HELD, field="job")
    named = Consent.objects.get(pk=consent_id)
    require_root(named.root_id)
    require_goal(named.goal_id, root_id=named.root_id, revision=named.goal_revision)
    consent = Consent.objects.select_for_update().get(pk=consent_id)
    require_consent(consent)
    require_connections(consent.connections)
    require_job(job)
    return consent


def require_root(root_id: UUID) -> Root:
    """The session, live by the database's clock, of a login that still counts."""
    root = Root.objects.select_related("user").select_for_update(of=("self",)).get(pk=root_id)
    reason = why_over(root)
    if reason:
        raise ContactRefused(reason, field="root")
    return root


def why_over(root: Root) -> str:
    """Why a session carries nothing any more, empty while it does.

    Revoked, or its user may not be here any more: that is another word than over, because no
    patience and no new login brings it back.
    """
    if root.revoked_at is not None or not (root.user.is_active and root.user.is_staff):
        return AUTHORITY_REVOKED
    if root.is_over(database_now()) or root.login_digest != login_digest(root.user):
        return SESSION_UNAVAILABLE
    return ""


def login_digest(user: Any) -> str:
    """SHA-256, hex, of what Django ties a user's sessions to: it changes with the password."""
    return sha256(user.get_session_auth_hash().encode()).hexdigest()


def require_goal(goal_id: UUID, *, root_id: UUID, revision: int) -> Goal:
    """The goal: of that session, open, not deleted, at the revision that was granted under."""
    goal = Goal.objects.select_related("root").select_for_update(of=("self",)).get(pk=goal_id)
    if goal.deleted_at is not None:
        raise ContactRefused("goal_deleted", field="goal")
    if goal.root_id != root_id or goal.principal != goal.root.principal:
        raise ContactRefused("goal_reassigned", field="goal")
    if goal.closed_at is not None:
        raise ContactRefused("goal_closed", field="goal")
    if goal.revision != revision:
        raise ContactRefused("goal_changed", field="goal")
    return goal


def require_consent(consent: Consent) -> None:
    """The grant itself: not revoked, not over, and exactly what was granted."""
    if consent.revoked_at is not None:
        raise ContactRefused(AUTHORITY_REVOKED, field="consent")
    if consent.expires_at <= database_now():
        raise ContactRefused("consent_expired", field="consent")
    if digest_of(consent) != consent.digest:
        raise ContactRefused("consent_changed", field="consent")


def require_connections(bound: Sequence[Mapping[str, object]]) -> None:
    """Each connection that the grant binds: usable, at the revision that was granted."""
    for entry in bound:
        found = Connection.objects.select_for_update().filter(pk=str(entry["id"])).first()
        if found is None or found.state in (
            Connection.State.REVOKED,
            Connection.State.NEEDS_RECONNECT,
        ):
            raise ContactRefused("connection_unavailable", field="connection")
        if found.revision != entry["revision"]:
            raise ContactRefused("connection_changed", field="connection")


def require_job(job: Job) -> None:
    """The job is held by this process, under the fence it was read with, and in time."""
    Job.objects.select_for_update().get(pk=job.pk)
    held = Job.objects.filter(
        pk=job.pk,
        holder=process.this_process(),
        fence=job.fence,
        attempts=1,
        quiesced_at=None,
        finished_at=None,
    )
    if not held.exists():
        raise ContactRefused(JOB_NOT_HELD, field="job")
    if not held.filter(deadline__gt=database_now()).exists():
        raise ContactRefused("deadline_passed", field="job")


def require_effect(effect: Effect) -> None:
    """All that an effect was allowed under; what changed since is named."""
    approval = Approval.objects.get(pk=effect.approval_id)
    now = binding(approval, effect.consent, effect.goal_revision)
    for name, value in now.items():
        if effect.authority.get(name) != value:
            raise ContactRefused(f"{name}_changed", field=name)
    if effect.needs_authority and effect.consent_id is not None:
        require(consent_id=effect.consent_id, job=effect.job)


def binding(
    approval: Approval, consent: Consent | None, goal_revision: int | None
) -> dict[str, object]:
    """What an effect keeps of the authority it was installed under, as JSON."""
    return {
        "approval": str(approval.pk),
        "digest": approval.digest,
        "expiry": approval.expires_at.astimezone(UTC).isoformat(),
        "root": str(approval.root_id or ""),
        "goal": str(approval.goal_id or ""),
        "goal_revision": goal_revision,
        "consent": consent.digest if consent is not None else "",
    }


def digest_of(consent: Consent) -> str:
    """SHA-256, hex, over everything that a grant grants. Its caps are read from its budgets."""
    caps = {budget.contact: budget.cap for budget in consent.budgets.all()}
    return consent_digest(
        purpose=consent.purpose,
        root_id=consent.root_id,
        goal_id=consent.goal_id,
        goal_revision=consent.goal_revision,
        effect_id=consent.effect_id,
        connections=consent.connections,
        request_digest=consent.request_digest,
        expires_at=consent.expires_at,
        caps=caps,
    )


def consent_digest(
    *,
    purpose: str,
    root_id: UUID,
    goal_id: UUID,
    goal_revision: int,
    effect_id: UUID | None,
    connections: Sequence[Mapping[str, object]],
    request_digest: str,
    expires_at: datetime,
    caps: Mapping[str, int],
) -> str:
    """The same, of a grant that is not stored yet."""
    document: dict[str, Any] = {
        "purpose": str(purpose),
        "root": str(root_id),
        "goal": str(goal_id),
        "goal_revision": goal_revision,
        "effect": str(effect_id or ""),
        "connections": [dict(entry) for entry in connections],
        "request": request_digest,
        "expires_at": expires_at.astimezone(UTC).isoformat(timespec="milliseconds"),
        "caps": {str(name): cap for name, cap in caps.items()},
    }
    return sha256(rfc8785.dumps(document)).hexdigest()

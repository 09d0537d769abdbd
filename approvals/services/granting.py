"""What a yes grants: the finite contacts of one act, in the very session that read it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from approvals import freezing, registry
from approvals.clock import database_now
from approvals.exceptions import Blocked, ContactRefused
from approvals.models import Approval, Goal, Root
from approvals.services import authority, consents, jobs
from approvals.types import BoundConnection, Purpose
from guards.types import Asker


def require_reviewer(
    approval_id: UUID, *, by: Asker, via: str, root: Root | None
) -> tuple[Goal | None, Sequence[BoundConnection]]:
    """The goal of the review and the connections to bind, locked in order before the approval.

    Only in the very session that opened it, and with the connections that its snapshot was taken
    through. Nothing for a kind without caps, and for an approval that was answered before.
    """
    asked = Approval.objects.select_related("goal__root").get(pk=approval_id)
    if not registry.caps(asked.kind, Purpose.EXECUTE) or asked.state != Approval.State.PENDING:
        return None, ()
    goal = asked.goal
    if root is None or goal is None or via != Approval.Via.CONSOLE or asked.root_id != root.pk:
        raise ContactRefused(authority.SESSION_UNAVAILABLE, field="root")
    if authority.require_root(root.pk).principal != str(by):
        raise ContactRefused(authority.SESSION_UNAVAILABLE, field="root")
    goal = authority.require_goal(goal.pk, root_id=root.pk, revision=goal.revision)
    for looked in goal.consents.select_for_update().filter(purpose=Purpose.PREVIEW):
        if looked.revoked_at is not None:
            raise ContactRefused(authority.AUTHORITY_REVOKED, field="consent")
        authority.require_connections(looked.connections)
    try:
        subject = freezing.subject_of(asked)
        bound = registry.act(asked.kind).connections(subject, Purpose.EXECUTE)
    except Blocked as blocked:
        raise ContactRefused(blocked.reason, field=blocked.field or "") from blocked
    authority.require_connections([{"id": str(one.id), "revision": one.revision} for one in bound])
    return goal, bound


def grant_execution(
    approval: Approval, goal: Goal | None, bound: Sequence[BoundConnection]
) -> dict[str, Any]:
    """The finite grant that the intent needs; nothing for a kind without caps."""
    if goal is None:
        return {}
    consent = consents.grant(
        purpose=Purpose.EXECUTE,
        goal=goal,
        caps=registry.caps(approval.kind, Purpose.EXECUTE),
        expires_at=database_now() + timedelta(seconds=jobs.DEADLINE_SECONDS),
        connections=bound,
    )
    return {"consent": consent, "goal_revision": goal.revision}

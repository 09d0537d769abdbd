"""What a later look rests on: the act of unknown outcome, and whoever may look at it.

Database only, inside the caller's transaction, in the house's lock order. Whatever does not hold is
a ContactRefused with its own stable reason; then nothing is contacted (ADR-016).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from approvals.clock import database_now
from approvals.exceptions import ContactRefused
from approvals.models import Effect, Goal, Job, Root
from approvals.services import authority, jobs
from approvals.types import BoundConnection
from guards.types import Asker

EFFECT_NOT_UNKNOWN = "effect_not_unknown"
#: The original's process still holds its job.
ACT_STILL_RUNNING = "act_still_running"
#: Its job is over, but nobody proved that its transport was closed: it could still arrive.
TRANSPORT_UNSETTLED = "transport_unsettled"
LOOK_RUNNING = "look_running"
CONNECTION_CHANGED = "connection_changed"
EFFECT_MOVED_ON = "effect_moved_on"
WORDS = frozenset(
    {
        *(EFFECT_NOT_UNKNOWN, ACT_STILL_RUNNING, TRANSPORT_UNSETTLED, LOOK_RUNNING),
        *(CONNECTION_CHANGED, EFFECT_MOVED_ON, "goal_deleted", "goal_reassigned"),
        *(authority.SESSION_UNAVAILABLE, authority.AUTHORITY_REVOKED),
    }
)

#: What a person's own word may change about an effect meanwhile. A look changes none of it.
_ACKNOWLEDGEMENT = frozenset({"acknowledged_at", "acknowledged_by"})


def require_quiet(effect: Effect) -> None:
    """Nothing of the original can still arrive. Asks this machine for processes: call it outside.

    What is settled stays settled, so no transaction has to ask again.
    """
    job: Job = effect.job
    is_settled = jobs.is_settled(job)
    if not is_settled and job.finished_at is None and job.holder and _is_in_time(job):
        raise ContactRefused(ACT_STILL_RUNNING, field="job")
    if not is_settled:
        raise ContactRefused(TRANSPORT_UNSETTLED, field="job")


def require_unknown(effect: Effect) -> None:
    """Only an unknown outcome is looked at again; it is final, so no lock is needed."""
    if effect.phase != Effect.Phase.UNKNOWN:
        raise ContactRefused(EFFECT_NOT_UNKNOWN, field="effect")


def require_looker(effect: Effect, *, by: Asker, root: Root | None) -> Root:
    """The live session of this person; for an act under authority, the very one that made it.

    No other session is adopted: neither a later login of the same person nor the same address.
    """
    if root is None:
        raise ContactRefused(authority.SESSION_UNAVAILABLE, field="root")
    if effect.needs_authority and effect.root_id is not None and effect.root_id != root.pk:
        authority.require_root(effect.root_id)  # revoked is told apart from over
        raise ContactRefused(authority.SESSION_UNAVAILABLE, field="root")
    live = authority.require_root(root.pk)
    if live.principal != str(by):
        raise ContactRefused(authority.SESSION_UNAVAILABLE, field="principal")
    return live


def require_origin(effect: Effect) -> None:
    """The goal that the act was made under still exists, and is its owner's.

    It may be closed or have moved on; deleted or reassigned provenance is not brought back.
    """
    if effect.goal_id is None or effect.root_id is None:
        return
    goal = Goal.objects.select_for_update(of=("self",)).get(pk=effect.goal_id)
    owner = Root.objects.values_list("principal", flat=True).get(pk=effect.root_id)
    if goal.deleted_at is not None:
        raise ContactRefused("goal_deleted", field="goal")
    if goal.root_id != effect.root_id or goal.principal != owner:
        raise ContactRefused("goal_reassigned", field="goal")


def require_same_connections(effect: Effect, bound: Sequence[BoundConnection]) -> None:
    """Each connection that would look is usable, and the one that the act itself was bound to."""
    entries = [{"id": str(one.id), "revision": one.revision} for one in bound]
    authority.require_connections(entries)
    if effect.consent is None:
        return
    if any(entry not in effect.consent.connections for entry in entries):
        raise ContactRefused(CONNECTION_CHANGED, field="connection")


def require_no_other_look(effect: Effect) -> None:
    """One look at a time: two would each find the effect moved on by the other."""
    if Job.objects.filter(kind=Job.Kind.RECOVER, looks_at=effect, finished_at=None).exists():
        raise ContactRefused(LOOK_RUNNING, field="look")


def picture(effect: Effect) -> dict[str, Any]:
    """Every column of an effect and of its job, as they stand: what a look must find unmoved."""
    columns = {
        f"effect.{field.attname}": getattr(effect, field.attname)
        for field in effect._meta.concrete_fields
        if field.attname not in _ACKNOWLEDGEMENT
    }
    job = {
        f"job.{field.attname}": getattr(effect.job, field.attname)
        for field in effect.job._meta.concrete_fields
    }
    return {**columns, **job}


def require_unmoved(before: dict[str, Any], effect: Effect) -> None:
    """The effect, read again under its lock, is exactly what the look began with."""
    now = picture(effect)
    moved = next((name for name, value in before.items() if now[name] != value), None)
    if moved is not None:
        raise ContactRefused(EFFECT_MOVED_ON, field=moved)


def _is_in_time(job: Job) -> bool:
    return job.deadline is not None and job.deadline > database_now()

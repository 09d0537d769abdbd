"""Permissions: a yes that somebody who waits uses up himself, once, without a contact of ours.

The same people answer them on the same page, to the same digest, as acts. What differs is the end:
an act's approval becomes an Effect in the transaction of the yes, a permission's stays approved
until exactly the call that was shown comes back for it, or its time is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from approvals import freezing, registry
from approvals.clock import database_now
from approvals.exceptions import UnknownKind
from approvals.models import Approval, Hold
from approvals.services import approvals, transitions
from approvals.types import Frozen
from guards.exceptions import Conflict
from guards.services.units import unit_of_work
from guards.types import Asker


def permit(*, approval_id: UUID | str, by: Asker, via: str, digest: str) -> Approval:
    """Say yes to one use of exactly what was shown: `digest` is what the person saw.

    A second click with the same digest changes nothing. Raises DigestMismatch, ApprovalExpired,
    ApprovalSuperseded (with the drifted field), AlreadyDecided, OwnAct, NotAPerson; UnknownKind
    for an act, which `approvals.approve` is for.
    """
    asked = approvals.answerable(approval_id, by=by, via=via, digest=digest)
    _require_permission(asked)
    facts = freezing.open_facts(asked)
    with unit_of_work(durable=True):
        answer = _permit_locked(asked.pk, facts, by=by, via=via)
    if isinstance(answer, Conflict):
        raise answer
    return answer


def consume(*, approval_id: UUID | str, use: Frozen) -> bool:
    """Use a permission up: True exactly once. Joins the caller's transaction, database only.

    `use` is what would be done now; unless it has the digest that a person said yes to, nothing
    moves. One that is over, or drifted, is moved there. False either way.
    """
    with unit_of_work():
        approval = approvals.locked(approvals.found(approval_id).pk)
        _require_permission(approval)
        if approval.state != Approval.State.APPROVED:
            return False
        if freezing.digest_of_use(approval, use) != approval.digest:
            return False
        if approvals.lapse(approval, use.facts) is not None:
            return False
        transitions.move_approval(approval, state=Approval.State.CONSUMED)
    return True


def revoke(*, approval_id: UUID | str, drifted: str) -> bool:
    """Void a yes that nobody has used; False when there is none. Joins the caller's transaction."""
    with unit_of_work():
        approval = approvals.locked(approvals.found(approval_id).pk)
        _require_permission(approval)
        if approval.state != Approval.State.APPROVED:
            return False
        transitions.move_approval(approval, state=Approval.State.SUPERSEDED, drifted=drifted[:64])
    return True


def _permit_locked(
    approval_id: UUID, facts: Mapping[str, object], *, by: Asker, via: str
) -> Approval | Conflict:
    """Inside the transaction. A Conflict that is returned has to be committed before it is told."""
    approval = approvals.locked(approval_id)
    if approval.state in {Approval.State.APPROVED, Approval.State.CONSUMED}:
        return approval
    if approval.state != Approval.State.PENDING:
        raise approvals.left_behind(approval)
    lapsed = approvals.lapse(approval, facts)
    if lapsed is not None:
        return lapsed
    now = database_now()
    transitions.move_approval(
        approval,
        state=Approval.State.APPROVED,
        decided_at=now,
        decided_by=str(by),
        decided_via=via,
    )
    if approval.hold is not None:
        transitions.close_hold(
            approval.hold, state=Hold.State.ALLOWED, closed_at=now, closed_by=str(by)
        )
    return approval


def _require_permission(approval: Approval) -> None:
    if not registry.is_permission(approval.kind):
        raise UnknownKind(f"{approval.kind!r} is no permission: a yes to it becomes an effect")

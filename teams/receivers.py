"""Reactions of the log: it writes what was collected, and what guards and approvals announce.

Every receiver runs inside the announcing transaction (`send`, not `send_robust`): one that fails
rolls the act back, so there is no act without its record (invariant 24).
"""

from __future__ import annotations

from typing import Any

from approvals import signals as approvals_signals
from approvals.models import Approval, Connection, Consent, Effect, Goal, Hold, Job, Root
from guards import signals as guards_signals
from guards.models import ApiToken, Contact, Decision, Permission, PinnedKey
from guards.services.units import Unit, unit_of_work
from guards.types import SYSTEM, Subject
from teams.services import events


def connect() -> None:
    """Connect every receiver. Called once, in `ready()`."""
    connections = (
        (guards_signals.unit_closing, append_on_closing),
        (guards_signals.decided, record_decision),
        (guards_signals.key_changed, record_key),
        (guards_signals.permission_changed, record_permission),
        (guards_signals.token_changed, record_token),
        (guards_signals.task_refused, record_refused_task),
        (approvals_signals.held, record_hold),
        (approvals_signals.hold_closed, record_closed_hold),
        (approvals_signals.approval_changed, record_approval),
        (approvals_signals.effect_changed, record_effect),
        (approvals_signals.effect_acknowledged, record_acknowledgement),
        (approvals_signals.look_changed, record_look),
        (approvals_signals.root_changed, record_session),
        (approvals_signals.goal_changed, record_goal),
        (approvals_signals.consent_changed, record_grant),
        (approvals_signals.connection_changed, record_connection),
    )
    for signal, receiver in connections:
        signal.connect(receiver, dispatch_uid=f"teams.{receiver.__name__}")


def append_on_closing(*, unit: Unit, **_: Any) -> None:
    """The last word of a unit of work: its events."""
    events.append_collected(unit)


def record_decision(*, decision: Decision, **_: Any) -> None:
    """Who asked what, and which rule decided; about the subject of the decision."""
    events.append_event(
        kind="decision.made",
        subject=Subject(decision.subject_type, decision.subject_id),
        actor=decision.asker,
        facts={
            "decision": decision.pk,
            "action": str(decision.action),
            "verdict": str(decision.verdict),
            "rule": str(decision.rule),
            "permission": decision.permission,
        },
    )


def record_key(*, contact: Contact, key: PinnedKey, change: str, **_: Any) -> None:
    """A key counts for a contact from now on, or no longer does."""
    events.append_event(
        kind=f"key.{change}",
        subject=Subject("guards.contact", str(contact.pk)),
        actor=key.pinned_by if change == "pinned" else _by(_),
        facts={"key": key.pk, "fingerprint": key.fingerprint},
    )


def record_permission(*, permission: Permission, by: str, **_: Any) -> None:
    """What a contact may ask of an identity has changed."""
    events.append_event(
        kind="permission.changed",
        subject=Subject("guards.permission", str(permission.pk)),
        actor=by,
        facts={
            "identity": permission.identity.handle,
            "contact": permission.contact_id,
            "rwx": str(permission.rwx),
        },
    )


def record_token(*, token: ApiToken, change: str, **_: Any) -> None:
    """A token was minted or revoked; live sockets look at it again."""
    events.append_event(
        kind=f"token.{change}",
        subject=Subject("guards.apitoken", str(token.pk)),
        actor=token.created_by if change == "minted" else _by(_),
        project=token.project,
        facts={"prefix": token.prefix, "scopes": list(token.scopes)},
    )


def record_refused_task(*, path: str, where: str, **_: Any) -> None:
    """A queue row named something that nobody may run. Announced outside of any unit of work."""
    with unit_of_work():
        events.append_event(
            kind="queue.refused",
            subject=Subject("guards.queue", where),
            actor=str(SYSTEM),
            facts={"path": path.replace("\0", "")[:200], "where": where},
        )


def record_hold(*, hold: Hold, **_: Any) -> None:
    """A draft waits for a person."""
    events.append_event(
        kind="hold.opened",
        subject=Subject("approvals.hold", str(hold.pk)),
        actor=hold.requested_by,
        project=hold.project,
        facts={**_about(hold), "reason": hold.reason, "requested_by": hold.requested_by},
    )


def record_closed_hold(*, hold: Hold, **_: Any) -> None:
    """A draft waits no longer."""
    events.append_event(
        kind="hold.closed",
        subject=Subject("approvals.hold", str(hold.pk)),
        actor=hold.closed_by or str(SYSTEM),
        project=hold.project,
        facts={**_about(hold), "state": str(hold.state)},
    )


def record_approval(*, approval: Approval, old: str, **_: Any) -> None:
    """An approval moved."""
    facts: dict[str, object] = {
        **_about(approval),
        "digest": approval.digest,
        "old": str(old),
        "hold": str(approval.hold_id) if approval.hold_id else None,
    }
    if approval.drifted:
        facts["drifted"] = approval.drifted
    if approval.decision_id is not None:
        facts["decision"] = approval.decision_id
    events.append_event(
        kind=f"approval.{approval.state}",
        subject=Subject("approvals.approval", str(approval.pk)),
        actor=approval.decided_by or approval.requested_by,
        project=approval.project,
        facts=facts,
    )


def record_effect(*, effect: Effect, old: str, **_: Any) -> None:
    """An act moved from one phase to the next; its first move is its intent."""
    events.append_event(
        kind=f"effect.{effect.phase}",
        subject=Subject("approvals.effect", str(effect.pk)),
        actor=str(SYSTEM),
        project=effect.project,
        facts={
            **_about(effect),
            "approval": str(effect.approval_id),
            "digest": effect.digest,
            "old": str(old),
            "reason": effect.reason,
            "revision": effect.revision,
        },
    )


def record_acknowledgement(*, effect: Effect, by: str, **_: Any) -> None:
    """A person has seen that nobody can tell whether an act left."""
    events.append_event(
        kind="effect.acknowledged",
        subject=Subject("approvals.effect", str(effect.pk)),
        actor=by,
        project=effect.project,
        facts=_about(effect),
    )


def record_look(*, job: Job, effect: Effect, change: str, by: str, **_: Any) -> None:
    """Somebody looks again at an unknown outcome, or has: the act itself stays what it was."""
    facts: dict[str, object] = {
        **_about(effect),
        "job": str(job.pk),
        "grant": str(job.consent_id),
    }
    if change == "ended":
        facts |= {"outcome": job.outcome, "reason": job.reason}
    events.append_event(
        kind="effect.look_asked" if change == "asked" else "effect.looked_at",
        subject=Subject("approvals.effect", str(effect.pk)),
        actor=by,
        project=effect.project,
        facts=facts,
    )


def record_session(*, root: Root, change: str, by: str, **_: Any) -> None:
    """An operator's session began, ended or was revoked."""
    events.append_event(
        kind=f"session.{change}",
        subject=Subject("approvals.root", str(root.pk)),
        actor=by,
        facts={"principal": root.principal},
    )


def record_goal(*, goal: Goal, change: str, by: str, **_: Any) -> None:
    """What a person set out to do has begun or ended."""
    events.append_event(
        kind=f"goal.{change}",
        subject=Subject("approvals.goal", str(goal.pk)),
        actor=by,
        facts={
            "kind": str(goal.kind),
            "about": str(Subject(goal.about_type, goal.about_id)),
            "session": str(goal.root_id),
            "revision": goal.revision,
        },
    )


def record_grant(*, consent: Consent, change: str, by: str, **_: Any) -> None:
    """So many contacts were granted, or a grant was taken back."""
    events.append_event(
        kind=f"grant.{change}",
        subject=Subject("approvals.consent", str(consent.pk)),
        actor=by,
        facts={
            "purpose": str(consent.purpose),
            "goal": str(consent.goal_id),
            "session": str(consent.root_id),
            "digest": consent.digest,
        },
    )


def record_connection(*, connection: Connection, change: str, by: str, **_: Any) -> None:
    """A credential was connected, proved, refused or revoked; what it says stays out of it."""
    events.append_event(
        kind=f"connection.{change}",
        subject=Subject("approvals.connection", str(connection.pk)),
        actor=by,
        facts={
            "account": str(Subject(connection.account_type, connection.account_id)),
            "use": str(connection.use),
            "state": str(connection.state),
            "revision": connection.revision,
            "reason": connection.reason,
        },
    )


def _about(row: Hold | Approval | Effect) -> dict[str, object]:
    return {
        "kind": row.kind,
        "about": str(Subject(row.subject_type, row.subject_id)),
        "source": str(Subject(row.source_type, row.source_id)) if row.source_id else None,
    }


def _by(arguments: dict[str, Any]) -> str:
    return str(arguments.get("by") or SYSTEM)

"""Drafts that wait for a person."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from approvals import freezing, registry, signals
from approvals.clock import database_now
from approvals.exceptions import ContactRefused, EffectAlreadyExists
from approvals.models import Approval, Effect, Goal, Hold, Job, Root
from approvals.services import artifacts, authority, goals, people, transitions
from approvals.services.details import reason_of
from approvals.types import Purpose, Request
from guards.exceptions import AlreadyDecided, CountersignError, NotFound, Refused
from guards.services.units import unit_of_work
from guards.types import Asker, Subject


def hold(*, request: Request, reason: str) -> Hold:
    """Let a draft wait, as long as it must. The same draft waits once: asked again, same hold.

    Joins the caller's unit of work. EffectAlreadyExists when it has left, or may have.
    """
    registry.kind(request.kind)
    columns = freezing.request_columns(request)
    with unit_of_work():
        waiting = _waiting(request)
        if waiting is not None:
            return waiting
        if Effect.objects.may_have_left(request.kind, request.subject).exists():
            raise EffectAlreadyExists(f"{request.subject} has its one act already")
        held = Hold.objects.create(
            **columns, reason=reason, requested_by=str(request.requested_by), since=database_now()
        )
        signals.held.send(sender=Hold, hold=held)
    return held


def open_for_review(*, hold_id: UUID | str, by: Asker, root: Root | None = None) -> Approval:
    """Take a fresh snapshot of a waiting draft and start its clock: five minutes for an act
    (ADR-016), as long as its kind says for a permission.

    An approval of this hold that is still open becomes void: two open pages never approve two
    snapshots. `root` is the session of the person; a kind that asks its provider needs it, and
    gets a goal and a finite grant to look. NotFound, AlreadyDecided when the draft waits no longer,
    ContactRefused or Blocked when the snapshot cannot be taken.
    """
    people.require_person(by)
    waiting = _still_waiting(hold_id)
    goal = _goal_for(waiting, by=by, root=root)
    try:
        sealed = _snapshot(waiting, goal)
    except CountersignError:
        if goal is not None:
            goals.close(goal)
        raise
    return _open(waiting, sealed, by=by, validity=registry.validity(waiting.kind), goal=goal)


def open_for_mail(*, hold_id: UUID | str, by: Asker, validity: timedelta) -> Approval:
    """Take the snapshot that a notice shows in full and a signed mail may answer, and only that.

    It replaces an open approval of this hold and is replaced by the next. Refused where the kind
    is not answered by mail.
    """
    waiting = _still_waiting(hold_id)
    ways = getattr(registry.kind(waiting.kind), "via", None)
    if ways is not None and Approval.Via.MAIL not in ways:
        raise Refused(f"{waiting.kind} is not answered by mail", rule="answer-elsewhere")
    sealed = freezing.freeze(_request(waiting))
    return _open(waiting, sealed, by=by, validity=validity, answer_via=Approval.Via.MAIL)


def _still_waiting(hold_id: UUID | str) -> Hold:
    waiting = _found(hold_id)
    if waiting.state != Hold.State.WAITING:
        raise AlreadyDecided(f"the draft no longer waits: it is {waiting.state}")
    return waiting


def _goal_for(waiting: Hold, *, by: Asker, root: Root | None) -> Goal | None:
    """What the person of this session set out to do; a kind that asks its provider needs it."""
    if root is None:
        if registry.caps(waiting.kind, Purpose.EXECUTE):
            raise ContactRefused(authority.SESSION_UNAVAILABLE, field="root")
        return None
    return goals.begin(root=root, by=by, kind=Goal.Kind.REVIEW, about=_about(waiting))


def _about(held: Hold) -> Subject:
    """What the goal of a review is about."""
    return Subject("approvals.hold", str(held.pk))


def _snapshot(waiting: Hold, goal: Goal | None) -> freezing.SealedRequest:
    """The frozen subject, taken under a finite grant where the kind contacts anybody."""
    caps = registry.caps(waiting.kind, Purpose.PREVIEW)
    if goal is None or not caps:
        return freezing.freeze(_request(waiting))
    connections = registry.act(waiting.kind).connections(
        freezing.subject_of(waiting), Purpose.PREVIEW
    )
    with goals.granted_job(
        kind=Job.Kind.PREVIEW,
        purpose=Purpose.PREVIEW,
        goal=goal,
        caps=caps,
        connections=connections,
    ) as grant:
        return freezing.freeze(_request(waiting), grant)


def _open(
    waiting: Hold,
    sealed: freezing.SealedRequest,
    *,
    by: Asker,
    validity: timedelta,
    goal: Goal | None = None,
    answer_via: str = "",
) -> Approval:
    with unit_of_work(durable=True):
        needed = goal if registry.caps(waiting.kind, Purpose.EXECUTE) else None
        if needed is not None:
            authority.require_root(needed.root_id)
        # Locks all goals of this draft in one order: two sessions may open it at once.
        goals.close_about(_about(waiting), but=goal)
        if needed is not None:
            authority.require_goal(needed.pk, root_id=needed.root_id, revision=needed.revision)
        locked = Hold.objects.select_for_update().get(pk=waiting.pk)
        if locked.state != Hold.State.WAITING:
            raise AlreadyDecided(f"the draft no longer waits: it is {locked.state}")
        _void_open_approvals(locked, drifted="reopened")
        artifacts.store(*sealed.artifacts())
        now = database_now()
        approval = Approval.objects.create(
            hold=locked,
            created_at=now,
            expires_at=_until(now + validity, goal),
            opened_by=str(by),
            root=goal.root if goal else None,
            goal=goal,
            answer_via=answer_via,
            **sealed.columns(),
        )
        signals.approval_changed.send(sender=Approval, approval=approval, old="")
    return approval


def _until(moment: datetime, goal: Goal | None) -> datetime:
    """Never longer than the session that it was opened in, where its kind needs that session."""
    return min(moment, goal.root.expires_at) if goal is not None else moment


def withdraw(*, hold_id: UUID | str, by: Asker, reason: str) -> Hold:
    """Take a waiting draft back: nothing of it leaves. Joins the caller's unit of work."""
    reason = reason_of(reason, otherwise="a withdrawal needs a reason")
    with unit_of_work():
        goals.close_about(_about(_found(hold_id)))
        locked = _found(hold_id, lock=True)
        transitions.close_hold(
            locked,
            state=Hold.State.WITHDRAWN,
            closed_at=database_now(),
            closed_by=str(by),
            answer=reason,
        )
        _void_open_approvals(locked, drifted="withdrawn")
    return locked


def set_back(*, hold_id: UUID | str, drifted: str) -> Hold:
    """Void what waits for an answer about a draft, and let the draft wait on: a pause.

    Whoever answers next opens it afresh. `drifted` is the stable word for why. AlreadyDecided when
    the draft waits no longer. Joins the caller's unit of work.
    """
    with unit_of_work():
        goals.close_about(_about(_found(hold_id)))
        locked = _found(hold_id, lock=True)
        if locked.state != Hold.State.WAITING:
            raise AlreadyDecided(f"the draft no longer waits: it is {locked.state}")
        _void_open_approvals(locked, drifted=drifted)
    return locked


def _void_open_approvals(held: Hold, *, drifted: str) -> None:
    still_open = held.approvals.select_for_update().filter(state__in=Approval.OPEN)
    for approval in still_open.order_by("created_at"):
        transitions.move_approval(approval, state=Approval.State.SUPERSEDED, drifted=drifted)


def _waiting(request: Request) -> Hold | None:
    return Hold.objects.filter(
        kind=request.kind,
        subject_type=request.subject.type,
        subject_id=request.subject.id,
        state=Hold.State.WAITING,
    ).first()


def _found(hold_id: UUID | str, *, lock: bool = False) -> Hold:
    rows = Hold.objects.select_for_update() if lock else Hold.objects.all()
    found = rows.filter(pk=hold_id).first()
    if found is None:
        raise NotFound(f"no draft waits under {hold_id}", field="hold")
    return found


def _request(held: Hold) -> Request:
    def reference(kind: str, identifier: str) -> Subject | None:
        return Subject(kind, identifier) if identifier else None

    optional: dict[str, Any] = {
        "source": reference(held.source_type, held.source_id),
        "account": reference(held.account_type, held.account_id),
        "project": held.project,
    }
    requested_by = Asker(*held.requested_by.partition(":")[::2])
    return Request(held.kind, freezing.subject_of(held), requested_by, **optional)

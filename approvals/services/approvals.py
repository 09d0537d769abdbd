"""Yes and no to exactly what was shown, and the one step from a yes to its intent."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, connection

from approvals import freezing, registry, signals
from approvals.clock import database_now
from approvals.exceptions import (
    ApprovalExpired,
    ApprovalSuperseded,
    DigestMismatch,
    EffectAlreadyExists,
    EffectOutstanding,
)
from approvals.models import Approval, Consent, Effect, EffectQuerySet, Hold, Job, Root
from approvals.services import (
    artifacts,
    authority,
    goals,
    granting,
    jobs,
    people,
    transitions,
)
from approvals.services.details import reason_of
from approvals.types import Purpose, Request
from guards import process, queue
from guards.exceptions import AlreadyDecided, Conflict, NotFound, Refused
from guards.models import Decision
from guards.services import decisions
from guards.services.units import unit_of_work
from guards.types import Asker, Judgement, Verdict


def approve(
    *, approval_id: UUID | str, by: Asker, via: str, digest: str, root: Root | None = None
) -> Effect:
    """Say yes to what was shown: `digest` is what the person saw.

    Consumes the approval and installs its intent in one transaction, then the queue dispatches it.
    A second click with the same digest gets the same effect. A kind with caps needs the very
    session that opened the review as `root`, and gets its finite grant here. Raises DigestMismatch,
    ApprovalExpired, ApprovalSuperseded (with the drifted field), AlreadyDecided, EffectOutstanding,
    OwnAct, NotAPerson, ContactRefused (session over, revoked, goal changed).
    """
    asked = answerable(approval_id, by=by, via=via, digest=digest)
    registry.act(asked.kind)
    if asked.state == Approval.State.CONSUMED:
        return Effect.objects.get(approval=asked)
    facts = freezing.open_facts(asked)
    try:
        with unit_of_work(durable=True):
            answer = _approve_locked(asked.pk, facts, by=by, via=via, root=root)
    except IntegrityError as error:
        crossed = _why_not_installed(asked)
        if crossed is None:
            raise
        raise crossed from error
    if isinstance(answer, Conflict):
        raise answer
    return answer


def reject(*, approval_id: UUID | str, by: Asker, via: str, reason: str) -> Approval:
    """Say no, with a reason that reaches whoever asked. A no needs no clock.

    The same no by the same person again changes nothing. InvalidInput without a reason,
    AlreadyDecided for another answer.
    """
    return _refuse(
        approval_id,
        by=by,
        via=via,
        reason=reason,
        state=Approval.State.REJECTED,
        hold_state=Hold.State.REJECTED,
    )


def request_changes(*, approval_id: UUID | str, by: Asker, via: str, reason: str) -> Approval:
    """Ask for another draft, with a reason that reaches whoever asked; again, as `reject` is."""
    return _refuse(
        approval_id,
        by=by,
        via=via,
        reason=reason,
        state=Approval.State.CHANGES_REQUESTED,
        hold_state=Hold.State.CHANGES_REQUESTED,
    )


def approve_by_policy(*, request: Request, judgement: Judgement) -> Effect:
    """An approval that a policy decided: every effect has one, with its Decision.

    Freezes outside the transaction and installs the intent, claimed by this process for
    `jobs.DEADLINE_SECONDS`; the caller dispatches it. The same subject asked again gets the same
    effect, or EffectAlreadyExists when it would now be another act. Refused unless the judgement
    allows, and for kinds that only a person may approve.
    """
    if judgement.verdict is not Verdict.ALLOW:
        raise Refused(f"{request.subject} may not leave: {judgement.rule}", rule=judgement.rule)
    by_policy = registry.act(request.kind).by_policy
    if not by_policy or registry.caps(request.kind, Purpose.EXECUTE):
        raise Refused(f"{request.kind} is approved by a person, each time", rule="needs-a-person")
    sealed = freezing.freeze(request)
    earlier = _earlier_effect(sealed)
    if earlier is not None:
        return earlier
    try:
        with unit_of_work(durable=True):
            answer = _approve_sealed(sealed, judgement)
    except (IntegrityError, EffectAlreadyExists, EffectOutstanding) as error:
        # Another process was first: with the same act, or with another about its source.
        earlier = _earlier_effect(sealed)
        if earlier is None:
            raise EffectOutstanding(field="source") from error
        return earlier
    if isinstance(answer, Conflict):
        raise answer
    return answer


def expire_due() -> int:
    """Move approvals past their time, by the database's clock; how many there were.

    Those that a person has said yes to as well: of permissions that nobody used.
    """
    moved = 0
    with unit_of_work(durable=True):
        due = Approval.objects.select_for_update().filter(
            state__in=Approval.OPEN, expires_at__lte=database_now()
        )
        for approval in due.order_by("created_at"):
            transitions.move_approval(approval, state=Approval.State.EXPIRED)
            moved += 1
    return moved


def _approve_locked(
    approval_id: UUID, facts: Mapping[str, object], *, by: Asker, via: str, root: Root | None
) -> Effect | Conflict:
    """Inside the transaction. A Conflict that is returned has to be committed before it is told."""
    goal, bound = granting.require_reviewer(approval_id, by=by, via=via, root=root)
    approval = locked(approval_id)
    if approval.state == Approval.State.CONSUMED:
        return Effect.objects.get(approval=approval)
    if approval.state != Approval.State.PENDING:
        raise left_behind(approval)
    lapsed = lapse(approval, facts)
    if lapsed is not None:
        return lapsed
    transitions.move_approval(
        approval,
        state=Approval.State.APPROVED,
        decided_at=database_now(),
        decided_by=str(by),
        decided_via=via,
    )
    granted = granting.grant_execution(approval, goal, bound)
    effect = _consume_and_install(approval, **granted)
    if approval.hold is not None:
        transitions.close_hold(
            approval.hold,
            state=Hold.State.SENT,
            closed_at=approval.decided_at,
            closed_by=approval.decided_by,
        )
    queue.enqueue("approvals.tasks.dispatch_effect", str(effect.pk))
    return effect


def _approve_sealed(sealed: freezing.SealedRequest, judgement: Judgement) -> Effect | Conflict:
    decision = decisions.record_decision(
        judgement=judgement, asker=sealed.request.requested_by, subject=sealed.request.subject
    )
    approval = _create_for_policy(sealed, decision)
    lapsed = lapse(approval, sealed.clear_facts)
    if lapsed is not None:
        return lapsed
    transitions.move_approval(
        approval,
        state=Approval.State.APPROVED,
        decided_at=approval.created_at,
        decided_by=f"policy:{judgement.rule}",
        decided_via=Approval.Via.POLICY,
    )
    return _consume_and_install(approval, holder=process.this_process())


def _create_for_policy(sealed: freezing.SealedRequest, decision: Decision) -> Approval:
    artifacts.store(*sealed.artifacts())
    now = database_now()
    approval = Approval.objects.create(
        created_at=now,
        expires_at=now + timedelta(seconds=settings.APPROVAL_SECONDS),
        decision=decision,
        **sealed.columns(),
    )
    signals.approval_changed.send(sender=Approval, approval=approval, old="")
    return approval


def lapse(approval: Approval, facts: Mapping[str, object]) -> Conflict | None:
    """Expired by the database's clock, or drifted: move it and say so. Nothing leaves."""
    if approval.expires_at <= database_now():
        transitions.move_approval(approval, state=Approval.State.EXPIRED)
        return ApprovalExpired()
    kind = registry.kind(approval.kind)
    drifted = kind.recheck_in_writer(freezing.subject_of(approval), facts)
    if drifted is None:
        return None
    transitions.move_approval(approval, state=Approval.State.SUPERSEDED, drifted=drifted[:64])
    return _superseded(approval)


def _consume_and_install(
    approval: Approval,
    *,
    holder: str = "",
    consent: Consent | None = None,
    goal_revision: int | None = None,
) -> Effect:
    """From an approval to its one intent. Opens nothing: the caller's transaction carries both.

    `holder` is the process that alone may carry it out; the grant is there where its kind needs it.
    """
    if not connection.in_atomic_block:
        raise RuntimeError(
            "an approval is consumed inside the transaction that installs its intent"
        )
    registry.act(approval.kind)
    if Effect.objects.may_have_left(approval.kind, freezing.subject_of(approval)).exists():
        raise EffectAlreadyExists(f"{freezing.subject_of(approval)} has its one act already")
    if approval.source_id and _about_same_source(approval).outstanding().exists():
        raise EffectOutstanding(field="source")
    transitions.move_approval(approval, state=Approval.State.CONSUMED)
    effect = Effect.objects.create(
        approval=approval,
        digest=approval.digest,
        payload=approval.payload,
        facts=approval.facts,
        job=jobs.create(kind=Job.Kind.EXECUTE, consent=consent, holder=holder),
        needs_authority=bool(registry.caps(approval.kind, Purpose.EXECUTE)),
        root=approval.root,
        goal=approval.goal,
        goal_revision=goal_revision,
        consent=consent,
        authority=authority.binding(approval, consent, goal_revision),
        created_at=database_now(),
        **freezing.shared_columns(approval),
    )
    signals.effect_changed.send(sender=Effect, effect=effect, old="")
    return effect


def _refuse(
    approval_id: UUID | str, *, by: Asker, via: str, reason: str, state: str, hold_state: str
) -> Approval:
    reason = reason_of(reason, otherwise="say why: the reason reaches whoever asked")
    asked = found(approval_id)
    people.require_answerer(by=by, via=via, requested_by=asked.requested_by, yes=False)
    with unit_of_work(durable=True):
        if asked.goal is not None:
            goals.close(asked.goal)
        approval = locked(asked.pk)
        before = (approval.state, approval.decided_by, approval.decided_via, approval.reason)
        if before == (state, str(by), via, reason):
            return approval
        if approval.state != Approval.State.PENDING:
            raise left_behind(approval)
        now = database_now()
        transitions.move_approval(
            approval,
            state=state,
            decided_at=now,
            decided_by=str(by),
            decided_via=via,
            reason=reason,
        )
        if approval.hold is not None:
            transitions.close_hold(
                approval.hold, state=hold_state, closed_at=now, closed_by=str(by), answer=reason
            )
    return approval


def answerable(approval_id: UUID | str, *, by: Asker, via: str, digest: str) -> Approval:
    """The approval, if this person may answer it and has seen exactly it."""
    asked = found(approval_id)
    people.require_answerer(by=by, via=via, requested_by=asked.requested_by)
    _require_way(asked, via)
    if asked.digest != digest:
        raise DigestMismatch(field="digest")
    return asked


def _require_way(asked: Approval, via: str) -> None:
    """A yes comes by a way that the kind takes, and that this snapshot was opened for."""
    kind = registry.kind(asked.kind)
    ways = getattr(kind, "via", None)
    if ways is not None and via not in ways:
        raise Refused(
            f"{kind.label}: answered by {', '.join(sorted(ways))} only", rule="answer-elsewhere"
        )
    if asked.answer_via and via != asked.answer_via:
        raise Refused(
            "this snapshot waits for an answer by mail: open the draft for review to answer here",
            rule="answer-elsewhere",
        )


def found(approval_id: UUID | str) -> Approval:
    """The approval, unlocked; NotFound."""
    row = Approval.objects.select_related("facts", "goal").filter(pk=approval_id).first()
    if row is None:
        raise NotFound(f"there is no approval {approval_id}", field="approval")
    return row


def locked(approval_id: UUID) -> Approval:
    """The approval under its lock, its hold locked before it."""
    hold_id = Approval.objects.values_list("hold_id", flat=True).get(pk=approval_id)
    if hold_id is not None:
        Hold.objects.select_for_update().get(pk=hold_id)
    return (
        Approval.objects.select_for_update(of=("self",)).select_related("hold").get(pk=approval_id)
    )


def left_behind(approval: Approval) -> Conflict:
    """Why an approval that is no longer pending cannot be answered."""
    if approval.state == Approval.State.EXPIRED:
        return ApprovalExpired()
    if approval.state == Approval.State.SUPERSEDED:
        return _superseded(approval)
    return AlreadyDecided(f"this was decided before: it is {approval.get_state_display()}")


def _superseded(approval: Approval) -> ApprovalSuperseded:
    return ApprovalSuperseded(
        f"{approval.drifted} changed since this was shown: open the draft for review again",
        field=approval.drifted,
    )


def _earlier_effect(sealed: freezing.SealedRequest) -> Effect | None:
    """The effect that this very act has had already; EffectAlreadyExists when it was another."""
    request = sealed.request
    earlier = Effect.objects.may_have_left(request.kind, request.subject).first()
    if earlier is not None and earlier.digest != sealed.digest:
        raise EffectAlreadyExists(f"{request.subject} has had its one act, with other contents")
    return earlier


def _why_not_installed(approval: Approval) -> Conflict | None:
    """A unique constraint held where two transactions crossed: say which. None: it was another."""
    if Effect.objects.may_have_left(approval.kind, freezing.subject_of(approval)).exists():
        return EffectAlreadyExists()
    if approval.source_id and _about_same_source(approval).outstanding().exists():
        return EffectOutstanding(field="source")
    return None


def _about_same_source(row: Approval) -> EffectQuerySet:
    return Effect.objects.filter(
        account_type=row.account_type,
        account_id=row.account_id,
        source_type=row.source_type,
        source_id=row.source_id,
    )

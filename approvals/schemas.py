"""Shapes of the API: what waits, what was approved, and what left. Never a body or an address."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from ninja import Field, Schema
from pydantic import ConfigDict

from approvals.models import Approval, Connection, Effect, Hold, Observation


class ReferenceOut(Schema):
    """An opaque reference to a row of some app."""

    type: str = Field(examples=["mail.outbound"])
    id: str = Field(examples=["17"])


class HoldOut(Schema):
    """A draft that waits, or waited, for a person."""

    id: UUID
    kind: str = Field(examples=["mail.smtp"])
    subject: ReferenceOut
    project: str
    reason: str
    requested_by: str = Field(examples=["identity:bot"])
    state: str = Field(examples=["waiting"])
    since: datetime
    closed_at: datetime | None
    closed_by: str
    answer: str = Field(description="the reason that was given with a no")

    @classmethod
    def of(cls, hold: Hold) -> HoldOut:
        """A hold's shape."""
        return cls(
            id=hold.pk,
            kind=hold.kind,
            subject=_reference(hold),
            project=hold.project,
            reason=hold.reason,
            requested_by=hold.requested_by,
            state=hold.state,
            since=hold.since,
            closed_at=hold.closed_at,
            closed_by=hold.closed_by,
            answer=hold.answer,
        )


class ApprovalOut(Schema):
    """What exactly may happen, and what was answered."""

    id: UUID
    hold: UUID | None
    kind: str = Field(examples=["mail.smtp"])
    subject: ReferenceOut
    project: str
    digest: str = Field(description="SHA-256 over exactly what would happen")
    requested_by: str
    state: str = Field(examples=["consumed"])
    created_at: datetime
    expires_at: datetime
    decided_at: datetime | None
    decided_by: str = Field(examples=["operator:ada"])
    decided_via: str = Field(examples=["console"])
    reason: str
    drifted: str = Field(description="the field that changed after it was shown")

    @classmethod
    def of(cls, approval: Approval) -> ApprovalOut:
        """An approval's shape."""
        return cls(
            id=approval.pk,
            hold=approval.hold_id,
            kind=approval.kind,
            subject=_reference(approval),
            project=approval.project,
            digest=approval.digest,
            requested_by=approval.requested_by,
            state=approval.state,
            created_at=approval.created_at,
            expires_at=approval.expires_at,
            decided_at=approval.decided_at,
            decided_by=approval.decided_by,
            decided_via=approval.decided_via,
            reason=approval.reason,
            drifted=approval.drifted,
        )


class ReviewOut(ApprovalOut):
    """An approval with exactly what would happen: for the person who answers it."""

    preview: dict[str, Any] = Field(
        description="what a person reads before the answer; text from mail in it is untrusted"
    )
    seconds_left: float = Field(description="until it expires, by the database's clock")

    @classmethod
    def shown(cls, approval: Approval, *, preview: dict[str, object], left: float) -> ReviewOut:
        """An approval's shape with its opened preview."""
        shape = ApprovalOut.of(approval).model_dump()
        return cls(**shape, preview=preview, seconds_left=left)


class ApproveIn(Schema):
    """A yes to exactly what was shown."""

    model_config = ConfigDict(extra="forbid")

    digest: str = Field(max_length=64, description="`digest` of the review that was read")


class ReasonIn(Schema):
    """Why not; it reaches whoever asked."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(max_length=2_000, examples=["Say that it takes until Friday."])


class AnsweredOut(ApprovalOut):
    """An approval after an answer, and whether this call was made before."""

    replayed: bool


class ObservationOut(Schema):
    """What was seen of an effect later; it never changes the effect."""

    at: datetime
    observer: str = Field(description="the process of the act itself, or who looked again")
    outcome: str = Field(examples=["verified_sent_observation"])
    detail: dict[str, Any]
    job: UUID | None = Field(description="the look that saw it; none for the act's own process")
    grant: UUID | None = Field(description="the finite read-only grant of that look")

    @classmethod
    def of(cls, seen: Observation) -> ObservationOut:
        """An observation's shape."""
        return cls(
            at=seen.at,
            observer=seen.observer,
            outcome=seen.outcome,
            detail=_public(seen.detail),
            job=seen.job_id,
            grant=seen.job.consent_id if seen.job is not None else None,
        )


class ConnectionOut(Schema):
    """A credential of an account at its provider; the house has references to its secrets only."""

    id: UUID
    account: ReferenceOut
    use: str = Field(examples=["read"])
    state: str = Field(examples=["verified", "needs_reconnect"])
    reason: str = Field(description="a stable word for what is wrong; empty where nothing is")
    address: str = Field(description="the verified mailbox, exactly as the provider told it")
    declared: list[str]
    observed: list[str]
    revision: int
    created_at: datetime
    verified_at: datetime | None

    @classmethod
    def of(cls, connection: Connection) -> ConnectionOut:
        """A connection's shape, without its secrets' references."""
        return cls(
            id=connection.pk,
            account=ReferenceOut(type=connection.account_type, id=connection.account_id),
            use=connection.use,
            state=connection.state,
            reason=connection.reason,
            address=connection.address,
            declared=connection.declared,
            observed=connection.observed,
            revision=connection.revision,
            created_at=connection.created_at,
            verified_at=connection.verified_at,
        )


class EffectOut(Schema):
    """One act that leaves the house at most once."""

    id: UUID
    approval: UUID
    kind: str = Field(examples=["mail.smtp"])
    subject: ReferenceOut
    project: str
    digest: str
    phase: str = Field(examples=["accepted"])
    reason: str = Field(examples=["smtp-250"])
    detail: dict[str, Any]
    created_at: datetime
    contact_marked_at: datetime | None
    settled_at: datetime | None
    acknowledged_by: str
    observations: list[ObservationOut]

    @classmethod
    def of(cls, effect: Effect) -> EffectOut:
        """An effect's shape."""
        return cls(
            id=effect.pk,
            approval=effect.approval_id,
            kind=effect.kind,
            subject=_reference(effect),
            project=effect.project,
            digest=effect.digest,
            phase=effect.phase,
            reason=effect.reason,
            detail=_public(effect.detail),
            created_at=effect.created_at,
            contact_marked_at=effect.contact_marked_at,
            settled_at=effect.settled_at,
            acknowledged_by=effect.acknowledged_by,
            observations=[ObservationOut.of(seen) for seen in effect.observations.all()],
        )


class HoldPage(Schema):
    """One page of holds."""

    items: list[HoldOut]
    next_cursor: str | None


class ApprovalPage(Schema):
    """One page of approvals."""

    items: list[ApprovalOut]
    next_cursor: str | None


class ConnectionPage(Schema):
    """One page of connections."""

    items: list[ConnectionOut]
    next_cursor: str | None


class EffectPage(Schema):
    """One page of effects."""

    items: list[EffectOut]
    next_cursor: str | None


#: Which recipients a server took and refused: told here as how many.
_RECIPIENTS = frozenset({"refused", "taken"})


def _public(detail: dict[str, Any]) -> dict[str, Any]:
    """What is known of an act without what a server said in words, and to whom: that names people.

    The console shows all of it.
    """
    return {
        name: len(value) if name in _RECIPIENTS and isinstance(value, dict | list) else value
        for name, value in detail.items()
        if name != "reply"
    }


def _reference(row: Hold | Approval | Effect) -> ReferenceOut:
    return ReferenceOut(type=row.subject_type, id=row.subject_id)

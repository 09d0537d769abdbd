"""Reads of the sign-off desk, for its pages and its API."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from django.db import transaction
from django.db.models import Prefetch, QuerySet

from approvals import freezing, registry, sealing
from approvals.clock import database_now
from approvals.models import (
    Approval,
    Connection,
    Consent,
    ContactBudget,
    Effect,
    Hold,
    Job,
    Observation,
)
from approvals.types import Contact, Purpose
from guards.exceptions import NotFound, Refused
from guards.models import ApiToken, Identity
from guards.types import Asker

Waiting = TypeVar("Waiting", Hold, Approval)


@dataclass(frozen=True, slots=True)
class Clock:
    """How much time an approval has: seconds since its snapshot and seconds left, never below 0."""

    now: datetime
    expires_at: datetime
    read_seconds_ago: float
    seconds_left: float

    @property
    def is_over(self) -> bool:
        """Whether a yes comes too late."""
        return self.seconds_left <= 0


@dataclass(frozen=True, slots=True)
class ContactCount:
    """How many contacts of one kind a grant allows, and how many of them were made."""

    contact: str
    spent: int
    cap: int


@dataclass(frozen=True, slots=True)
class Look:
    """One later look at an effect: its job, what it contacted, and what it found."""

    job: Job
    contacts: list[ContactCount]
    observation: Observation | None


def waiting_holds() -> QuerySet[Hold]:
    """Drafts that wait for a person, oldest first, each with its open approval if it has one.

    `hold.open_approvals` is a list of at most one.
    """
    open_approvals = Prefetch(
        "approvals",
        queryset=Approval.objects.filter(state__in=Approval.OPEN),
        to_attr="open_approvals",
    )
    waiting = Hold.objects.filter(state=Hold.State.WAITING).order_by("since")
    return waiting.prefetch_related(open_approvals)


def outstanding_unknown() -> QuerySet[Effect]:
    """Acts of which nobody can tell whether they left, until a person acknowledges each."""
    return Effect.objects.filter(phase=Effect.Phase.UNKNOWN, acknowledged_at=None).order_by(
        "created_at"
    )


def approvals() -> QuerySet[Approval]:
    """All approvals, newest first, with their effect."""
    return Approval.objects.select_related("effect", "hold").order_by("-created_at")


def effects() -> QuerySet[Effect]:
    """All effects, newest first, with approval and observations."""
    return (
        Effect.objects.select_related("approval")
        .prefetch_related(Prefetch("observations", Observation.objects.select_related("job")))
        .order_by("-created_at")
    )


def holds() -> QuerySet[Hold]:
    """All holds, newest first."""
    return Hold.objects.order_by("-since")


def visible_to(token: ApiToken, rows: QuerySet[Waiting]) -> QuerySet[Waiting]:
    """The holds or approvals that a token may see.

    A project's token those of its project, an agent's token those that the agent asked for.
    """
    if token.project:
        rows = rows.filter(project=token.project)
    if token.identity is not None and token.identity.kind == Identity.Kind.AGENT:
        rows = rows.filter(requested_by=str(Asker("identity", token.identity.handle)))
    return rows


def visible_connections(token: ApiToken) -> QuerySet[Connection]:
    """All connections, newest first, for an operator's own token; Refused for any other."""
    is_agents = token.identity is not None and token.identity.kind == Identity.Kind.AGENT
    if token.project or is_agents:
        raise Refused("connections are told to an operator's own token", rule="operators-only")
    return Connection.objects.order_by("-created_at")


def visible_approval(token: ApiToken, approval_id: UUID) -> Approval:
    """One approval that a token may see; NotFound otherwise."""
    found = visible_to(token, Approval.objects.all()).filter(pk=approval_id).first()
    if found is None:
        raise NotFound(f"there is no approval {approval_id}", field="approval_id")
    return found


def visible_hold(token: ApiToken, hold_id: UUID) -> Hold:
    """One held draft that a token may see; NotFound otherwise."""
    found = visible_to(token, Hold.objects.all()).filter(pk=hold_id).first()
    if found is None:
        raise NotFound(f"no draft waits under {hold_id}", field="hold_id")
    return found


def visible_effects(token: ApiToken) -> QuerySet[Effect]:
    """The effects of the approvals that a token may see."""
    return effects().filter(approval__in=visible_to(token, Approval.objects.all()))


def visible_effect(token: ApiToken, effect_id: UUID) -> Effect:
    """One of them; NotFound otherwise."""
    found = visible_effects(token).filter(pk=effect_id).first()
    if found is None:
        raise NotFound(f"there is no effect {effect_id}", field="effect_id")
    return found


def preview(approval: Approval) -> dict[str, object]:
    """What a person reads before the answer: exactly what would leave.

    SecretUnavailable or ArtifactUnreadable when it cannot be opened: then nothing is approved.
    """
    shown: dict[str, object] = json.loads(sealing.unseal(approval.preview))
    return shown


def payload(approval: Approval) -> bytes:
    """The exact bytes that would leave, or have left."""
    return sealing.unseal(approval.payload)


def clock(approval: Approval) -> Clock:
    """The approval's time, by the database's clock."""
    now = database_now()
    return Clock(
        now=now,
        expires_at=approval.expires_at,
        read_seconds_ago=max(0.0, (now - approval.created_at).total_seconds()),
        seconds_left=max(0.0, (approval.expires_at - now).total_seconds()),
    )


def drift(approval: Approval) -> str | None:
    """The field that changed since the snapshot, or None. Looks only: approving decides."""
    if approval.state not in Approval.OPEN:
        return approval.drifted or None
    facts = freezing.open_facts(approval)
    with transaction.atomic():
        return registry.kind(approval.kind).recheck_in_writer(freezing.subject_of(approval), facts)


def contact_counts(consent: Consent | None) -> list[ContactCount]:
    """What a grant allows and what was spent of it, in the order in which contacts are made."""
    if consent is None:
        return []
    return _counts(consent.budgets.all())


def planned_contacts(kind: str, purpose: Purpose) -> list[ContactCount]:
    """What a grant for this purpose would allow; nothing for a kind that needs none."""
    caps = registry.caps(kind, purpose)
    return [ContactCount(str(one), 0, caps[one]) for one in Contact if one in caps]


def preview_grant(approval: Approval) -> Consent | None:
    """The grant under which the snapshot of a review was taken."""
    if approval.goal_id is None:
        return None
    grants = Consent.objects.filter(goal_id=approval.goal_id, purpose=Purpose.PREVIEW)
    return grants.prefetch_related("budgets").order_by("-created_at").first()


def looks_at(effect: Effect) -> list[Look]:
    """Every later look at an effect, newest first."""
    jobs = Job.objects.filter(looks_at=effect).select_related("observation", "consent")
    return [
        Look(
            job=job,
            contacts=contact_counts(job.consent),
            observation=getattr(job, "observation", None),
        )
        for job in jobs.prefetch_related("consent__budgets").order_by("-created_at")
    ]


def _counts(budgets: Iterable[ContactBudget]) -> list[ContactCount]:
    by_contact = {budget.contact: budget for budget in budgets}
    found = (by_contact[one] for one in Contact if one in by_contact)
    return [ContactCount(one.contact, one.spent, one.cap) for one in found]


def kinds_in_use() -> list[str]:
    """Names of the kinds that something waiting or on its way belongs to."""
    waiting = Hold.objects.filter(state=Hold.State.WAITING).values_list("kind", flat=True)
    moving = Effect.objects.filter(phase__in=Effect.OUTSTANDING).values_list("kind", flat=True)
    return sorted({*waiting, *moving})

"""Finite grants: made with a goal, spent contact by contact, never refilled."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID, uuid4

from django.db.models import F

from approvals import signals
from approvals.clock import database_now
from approvals.exceptions import ContactRefused
from approvals.models import Consent, ContactBudget, Effect, Goal, Job
from approvals.services import authority, people
from approvals.types import BoundConnection, Contact, Purpose
from guards.exceptions import NotFound
from guards.services.units import unit_of_work
from guards.types import Asker


def grant(
    *,
    purpose: Purpose,
    goal: Goal,
    caps: Mapping[Contact, int],
    expires_at: datetime,
    connections: Sequence[BoundConnection] = (),
    effect: Effect | None = None,
    request_digest: str = "",
) -> Consent:
    """Write down what may be contacted, how often and until when. Joins the caller's transaction.

    Never longer than the session: `expires_at` is cut to its absolute end.
    """
    expires_at = min(expires_at, goal.root.expires_at)
    bound = [{"id": str(one.id), "revision": one.revision} for one in connections]
    with unit_of_work():
        consent = Consent.objects.create(
            id=uuid4(),
            purpose=purpose,
            root=goal.root,
            goal=goal,
            goal_revision=goal.revision,
            effect=effect,
            connections=bound,
            request_digest=request_digest,
            created_at=database_now(),
            expires_at=expires_at,
            digest=authority.consent_digest(
                purpose=purpose,
                root_id=goal.root_id,
                goal_id=goal.pk,
                goal_revision=goal.revision,
                effect_id=effect.pk if effect else None,
                connections=bound,
                request_digest=request_digest,
                expires_at=expires_at,
                caps={str(contact): cap for contact, cap in caps.items()},
            ),
        )
        ContactBudget.objects.bulk_create(
            ContactBudget(consent=consent, contact=contact, cap=cap)
            for contact, cap in sorted(caps.items())
        )
        signals.consent_changed.send(
            sender=Consent, consent=consent, change="granted", by=goal.principal
        )
    return consent


def revoke(*, consent_id: UUID | str, by: Asker, reason: str = "") -> Consent:
    """Take a grant back: no further contact is made under it. Revoking twice changes nothing."""
    people.require_person(by)
    with unit_of_work():
        consent = Consent.objects.select_for_update().filter(pk=consent_id).first()
        if consent is None:
            raise NotFound(f"there is no grant {consent_id}", field="consent")
        moved = Consent.objects.filter(pk=consent.pk, revoked_at=None).update(
            revoked_at=database_now(), revoked_by=str(by), revoked_reason=reason.strip()
        )
        consent.refresh_from_db()
        if moved:
            signals.consent_changed.send(
                sender=Consent, consent=consent, change="revoked", by=str(by)
            )
    return consent


def spend_contact(*, consent_id: UUID, job: Job, contact: Contact) -> None:
    """Count one contact in a short transaction of its own that looks at the whole authority again.

    ContactRefused with the reason: then the contact is not made. What was counted stays counted,
    whatever becomes of the contact.
    """
    with unit_of_work(durable=True):
        authority.require(consent_id=consent_id, job=job)
        take(consent_id=consent_id, contact=contact)


def take(*, consent_id: UUID, contact: Contact) -> None:
    """The count alone, inside the caller's transaction that has looked at the authority."""
    taken = ContactBudget.objects.filter(
        consent_id=consent_id, contact=contact, spent__lt=F("cap")
    ).update(spent=F("spent") + 1)
    if taken != 1:
        raise ContactRefused("contacts_used_up", field=str(contact))


class JobGrant:
    """A grant in the hands of a job. Without a grant (a kind that needs none) nothing is counted.

    `marked` is the one contact that the mark of an effect has counted already.
    """

    def __init__(self, job: Job, *, marked: Contact | None = None) -> None:
        self._job = job
        self._marked = marked
        left = (job.deadline - database_now()).total_seconds() if job.deadline else 0.0
        self._until = time.monotonic() + left

    def spend(self, contact: Contact) -> None:
        """See `Grant.spend`."""
        if self._marked is not None and contact is self._marked:
            self._marked = None
            return
        if self._job.consent_id is not None:
            spend_contact(consent_id=self._job.consent_id, job=self._job, contact=contact)

    def seconds_left(self) -> float:
        """See `Grant.seconds_left`."""
        return max(0.0, self._until - time.monotonic())

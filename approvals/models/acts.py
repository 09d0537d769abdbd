"""Acts: what waits, what was approved, what was done once, and what was seen of it later."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q
from django.utils import timezone

from guards.types import Subject


class Artifact(models.Model):
    """Private bytes, encrypted at rest with MultiFernet: exact MIME, previews, provider ids.

    `sha256` and `size` are of the plaintext. Never in an event, a decision or a log.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    ciphertext = models.BinaryField()
    sha256 = models.CharField(max_length=64)
    size = models.PositiveIntegerField()
    created_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"{self.sha256[:12]} ({self.size} bytes)"


class ActRow(models.Model):
    """What a hold, its approval and its effect say alike: which act, about what, for whom.

    `kind` names an ActKind; subject, source and account are opaque references (type and id) into
    upper apps: what would leave, what it answers, and by which way.
    """

    kind = models.CharField(max_length=32)
    subject_type = models.CharField(max_length=64)
    subject_id = models.CharField(max_length=64)
    source_type = models.CharField(max_length=64, blank=True)
    source_id = models.CharField(max_length=64, blank=True)
    account_type = models.CharField(max_length=64, blank=True)
    account_id = models.CharField(max_length=64, blank=True)
    project = models.CharField(max_length=64, blank=True)

    class Meta:
        abstract = True


class Hold(ActRow):
    """A draft that waits for a person, as long as it must. *Open for review* makes its Approval."""

    class State(models.TextChoices):
        WAITING = "waiting"
        SENT = "sent"
        ALLOWED = "allowed"
        REJECTED = "rejected"
        CHANGES_REQUESTED = "changes_requested", "changes requested"
        WITHDRAWN = "withdrawn"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    reason = models.CharField(max_length=200)
    requested_by = models.CharField(max_length=200)
    state = models.CharField(max_length=20, choices=State.choices, default=State.WAITING)
    since = models.DateTimeField(default=timezone.now)
    closed_at = models.DateTimeField(null=True, blank=True)
    closed_by = models.CharField(max_length=200, blank=True)
    answer = models.TextField(blank=True)

    class Meta:
        ordering = ["since"]
        constraints = [
            models.UniqueConstraint(
                fields=["kind", "subject_type", "subject_id"],
                condition=Q(state="waiting"),
                name="hold_one_waiting_per_subject",
            ),
        ]
        indexes = [
            # Needs you: what waits, oldest first.
            models.Index(fields=["state", "since"], name="hold_waiting"),
        ]

    def __str__(self) -> str:
        return f"draft {str(self.pk)[:8]}"


class Approval(ActRow):
    """What exactly may happen, who asked, and what was answered.

    `digest` is SHA-256 over the canonical facts and the payload's own SHA-256. `payload` and
    `preview` are encrypted artifacts. Moves: pending → approved | rejected | changes_requested |
    expired | superseded, then approved → consumed | expired | superseded.
    """

    class State(models.TextChoices):
        PENDING = "pending"
        APPROVED = "approved"
        REJECTED = "rejected"
        CHANGES_REQUESTED = "changes_requested", "changes requested"
        EXPIRED = "expired"
        SUPERSEDED = "superseded"
        CONSUMED = "consumed"

    #: Approvals that may still lead to an act.
    OPEN = frozenset({State.PENDING, State.APPROVED})
    #: The moves that exist; everything else is refused by the service and a trigger.
    MOVES = {
        State.PENDING: frozenset(
            {
                State.APPROVED,
                State.REJECTED,
                State.CHANGES_REQUESTED,
                State.EXPIRED,
                State.SUPERSEDED,
            }
        ),
        State.APPROVED: frozenset({State.CONSUMED, State.EXPIRED, State.SUPERSEDED}),
    }

    class Via(models.TextChoices):
        POLICY = "policy"
        CONSOLE = "console"
        TOKEN = "token", "a person's token"
        MAIL = "mail", "signed mail"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    hold = models.ForeignKey(
        Hold, on_delete=models.PROTECT, null=True, blank=True, related_name="approvals"
    )
    digest = models.CharField(max_length=64)
    facts = models.ForeignKey(Artifact, on_delete=models.PROTECT, related_name="+")
    payload = models.ForeignKey(Artifact, on_delete=models.PROTECT, related_name="+")
    preview = models.ForeignKey(Artifact, on_delete=models.PROTECT, related_name="+")
    requested_by = models.CharField(max_length=200)
    opened_by = models.CharField(max_length=200, blank=True)
    state = models.CharField(max_length=20, choices=State.choices, default=State.PENDING)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    decided_at = models.DateTimeField(null=True, blank=True)
    decided_by = models.CharField(max_length=200, blank=True)
    decided_via = models.CharField(max_length=8, choices=Via.choices, blank=True)
    reason = models.TextField(blank=True)
    drifted = models.CharField(max_length=64, blank=True)
    decision = models.ForeignKey(
        "guards.Decision", on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    #: The session and the goal under which a person opened it; none where a policy decides.
    root = models.ForeignKey(
        "approvals.Root", on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    goal = models.ForeignKey(
        "approvals.Goal", on_delete=models.PROTECT, null=True, blank=True, related_name="approvals"
    )
    #: The one way in which this snapshot may be answered; empty: each that its kind allows.
    answer_via = models.CharField(max_length=8, choices=Via.choices, blank=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["hold"],
                condition=Q(state__in=["pending", "approved"]),
                name="approval_one_open_per_hold",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["pending", "expired", "superseded"])
                | Q(decided_at__isnull=False),
                name="approval_decided_has_time",
            ),
        ]

    def __str__(self) -> str:
        return f"approval {str(self.pk)[:8]}"


class EffectQuerySet(models.QuerySet["Effect"]):
    """Effects by what they still mean for others."""

    def may_have_left(self, kind: str, subject: Subject) -> EffectQuerySet:
        """The act about this subject that left, may have left, or is about to."""
        return self.filter(kind=kind, subject_type=subject.type, subject_id=subject.id).exclude(
            phase__in=Effect.NOT_SENT
        )

    def outstanding(self) -> EffectQuerySet:
        """Acts that block another one about their source."""
        return self.filter(
            Q(phase__in=Effect.OUTSTANDING) | Q(phase=Effect.Phase.UNKNOWN, acknowledged_at=None)
        )


class Effect(ActRow):
    """The one checkpoint of one act that leaves the house.

    The intent (everything but `phase`, the mark and the result) is frozen by trigger; `job` holds
    the claim of the one process that may make the contact. An act that needs authority beyond its
    approval carries session, goal, grant and what binds them (`authority`).
    `contact_marked_at` is written once, immediately before the one contact, and never cleared.
    Moves: intent → cancelled | failed | marked; marked → verified | accepted | unknown | failed;
    accepted → verified. A kind's own table says which of them it may take.
    """

    class Phase(models.TextChoices):
        INTENT = "intent"
        MARKED = "marked"
        ACCEPTED = "accepted"
        VERIFIED = "verified"
        FAILED = "failed"
        UNKNOWN = "unknown"
        CANCELLED = "cancelled"

    #: Effects that still block another one about the same source.
    OUTSTANDING = frozenset({Phase.INTENT, Phase.MARKED})
    #: Effects that provably never left: their subject may be tried again as a new act.
    NOT_SENT = frozenset({Phase.FAILED, Phase.CANCELLED})
    #: Effects that have ended well.
    DONE = frozenset({Phase.ACCEPTED, Phase.VERIFIED})
    MOVES = {
        Phase.INTENT: frozenset({Phase.CANCELLED, Phase.FAILED, Phase.MARKED}),
        Phase.MARKED: frozenset({Phase.VERIFIED, Phase.ACCEPTED, Phase.UNKNOWN, Phase.FAILED}),
        Phase.ACCEPTED: frozenset({Phase.VERIFIED}),
    }

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    approval = models.OneToOneField(Approval, on_delete=models.PROTECT, related_name="effect")
    digest = models.CharField(max_length=64)
    payload = models.ForeignKey(Artifact, on_delete=models.PROTECT, related_name="+")
    facts = models.ForeignKey(Artifact, on_delete=models.PROTECT, related_name="+")
    job = models.OneToOneField("approvals.Job", on_delete=models.PROTECT, related_name="effect")
    needs_authority = models.BooleanField(default=False)
    root = models.ForeignKey(
        "approvals.Root", on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    goal = models.ForeignKey(
        "approvals.Goal", on_delete=models.PROTECT, null=True, blank=True, related_name="effects"
    )
    goal_revision = models.PositiveIntegerField(null=True, blank=True)
    consent = models.OneToOneField(
        "approvals.Consent", on_delete=models.PROTECT, null=True, blank=True, related_name="spender"
    )
    authority = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    phase = models.CharField(max_length=12, choices=Phase.choices, default=Phase.INTENT)
    revision = models.PositiveIntegerField(default=0)
    contact_marked_at = models.DateTimeField(null=True, blank=True)
    settled_at = models.DateTimeField(null=True, blank=True)
    reason = models.CharField(max_length=64, blank=True)
    detail = models.JSONField(default=dict, blank=True)
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    acknowledged_by = models.CharField(max_length=200, blank=True)

    objects = EffectQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["account_type", "account_id", "source_type", "source_id"],
                condition=(
                    Q(phase__in=["intent", "marked"]) | Q(phase="unknown", acknowledged_at=None)
                )
                & ~Q(source_id=""),
                name="effect_one_outstanding_per_source",
            ),
            models.UniqueConstraint(
                fields=["kind", "subject_type", "subject_id"],
                condition=~Q(phase__in=["failed", "cancelled"]),
                name="effect_subject_leaves_once",
            ),
            models.CheckConstraint(
                condition=Q(phase__in=["intent", "cancelled", "failed"])
                | Q(contact_marked_at__isnull=False),
                name="effect_contact_only_after_mark",
            ),
            models.CheckConstraint(
                condition=Q(needs_authority=False)
                | (
                    Q(root__isnull=False)
                    & Q(goal__isnull=False)
                    & Q(goal_revision__isnull=False)
                    & Q(consent__isnull=False)
                ),
                name="effect_authority_is_whole",
            ),
        ]
        indexes = [
            # The sweep: what is due or stuck.
            models.Index(fields=["phase", "created_at"], name="effect_phase"),
        ]

    def __str__(self) -> str:
        return f"effect {str(self.pk)[:8]}"


class Observation(models.Model):
    """A later look at an effect: append-only, never changes its phase or intent.

    `job` is the look that found it, under its own grant; none for what the act's own job saw.
    """

    effect = models.ForeignKey(Effect, on_delete=models.PROTECT, related_name="observations")
    job = models.OneToOneField(
        "approvals.Job",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="observation",
    )
    at = models.DateTimeField(default=timezone.now)
    observer = models.CharField(max_length=200)
    outcome = models.CharField(max_length=40)
    detail = models.JSONField(default=dict)

    class Meta:
        ordering = ["at"]

    def __str__(self) -> str:
        return self.outcome

"""Authority: whose session, which goal, which finite grant, which process, under which fence."""

from __future__ import annotations

import uuid
from datetime import datetime

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from approvals.types import Contact, Purpose


class Root(models.Model):
    """One login of an operator. Minted at every login, never adopted by another (ADR-016).

    `principal` is the asker that it stands for (`operator:ada`). It lives until `expires_at` at
    most, and `idle_until` unless the console is used; `ended_at` is a logout or a later login in
    the same browser, `revoked_at` a security revocation. `login_digest` is SHA-256 of what the
    login was proved with: another password ends it, wherever it is open.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="roots"
    )
    principal = models.CharField(max_length=200)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    idle_until = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    revoked_by = models.CharField(max_length=200, blank=True)
    revoked_reason = models.TextField(blank=True)
    login_digest = models.CharField(max_length=64, blank=True)

    class Meta:
        ordering = ["-created_at"]
        verbose_name = "session"
        constraints = [
            models.CheckConstraint(
                condition=Q(idle_until__lte=F("expires_at")), name="root_idle_within_absolute"
            ),
        ]

    def __str__(self) -> str:
        return f"session {str(self.pk)[:8]} of {self.principal}"

    def is_over(self, now: datetime) -> bool:
        """Whether it has expired, was idle for too long, or was ended. Not: revoked."""
        return self.ended_at is not None or now >= min(self.expires_at, self.idle_until)


class Goal(models.Model):
    """What a person of a session set out to do: review a draft, look again, connect an account.

    `revision` grows with every change; what was granted under one revision ends with it. Goals are
    deleted softly: a look again still has to see whose it was.
    """

    class Kind(models.TextChoices):
        REVIEW = "review"
        LOOK_AGAIN = "look_again", "look again"
        CONNECT = "connect"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    root = models.ForeignKey(Root, on_delete=models.PROTECT, related_name="goals")
    principal = models.CharField(max_length=200)
    kind = models.CharField(max_length=12, choices=Kind.choices)
    about_type = models.CharField(max_length=64)
    about_id = models.CharField(max_length=64)
    revision = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(default=timezone.now)
    closed_at = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {str(self.pk)[:8]}"


class Connection(models.Model):
    """One credential of an account at a provider, for exactly one use.

    Secrets are references. `declared` and `observed` are canonical scope lists; `subject` is the
    provider's identifier and `address` the verified mailbox, both exactly as the provider told
    them. `revision` grows with every change of what is connected.
    """

    class Use(models.TextChoices):
        READ = "read"
        SEND = "send"
        READONLY = "readonly", "read-only"

    class State(models.TextChoices):
        NEW = "new"
        VERIFIED = "verified"
        NEEDS_RECONNECT = "needs_reconnect", "needs reconnecting"
        REVOKED = "revoked"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    account_type = models.CharField(max_length=64)
    account_id = models.CharField(max_length=64)
    use = models.CharField(max_length=8, choices=Use.choices)
    client_id = models.CharField(max_length=255)
    client_secret_ref = models.CharField(max_length=500)
    refresh_token_ref = models.CharField(max_length=500)
    declared = models.JSONField(default=list)
    observed = models.JSONField(default=list, blank=True)
    observed_digest = models.CharField(max_length=64, blank=True)
    subject = models.CharField(max_length=255, blank=True)
    address = models.CharField(max_length=254, blank=True)
    revision = models.PositiveIntegerField(default=1)
    state = models.CharField(max_length=16, choices=State.choices, default=State.NEW)
    reason = models.CharField(max_length=64, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    created_by = models.CharField(max_length=200)
    verified_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    revoked_by = models.CharField(max_length=200, blank=True)
    revoked_reason = models.TextField(blank=True)

    class Meta:
        ordering = ["account_type", "account_id", "use"]
        constraints = [
            models.UniqueConstraint(
                fields=["account_type", "account_id", "use"],
                condition=~Q(state="revoked"),
                name="connection_one_per_account_and_use",
            ),
            models.CheckConstraint(
                condition=~Q(state="verified")
                | (~Q(observed_digest="") & Q(verified_at__isnull=False)),
                name="connection_verified_has_evidence",
            ),
            models.CheckConstraint(
                condition=~Q(state="revoked") | Q(revoked_at__isnull=False),
                name="connection_revoked_has_time",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_use_display()} connection {str(self.pk)[:8]}"


class Consent(models.Model):
    """A finite grant: so many contacts of each kind, for one purpose, until a moment.

    `connections` binds each connection to its revision: `[{"id": …, "revision": …}]`. `digest` is
    SHA-256 over everything granted, caps included: a changed row is noticed at the next contact.
    A grant to look again names its effect and is asked for once (`request_digest`).
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    purpose = models.CharField(max_length=8, choices=[(p.value, p.value) for p in Purpose])
    root = models.ForeignKey(Root, on_delete=models.PROTECT, related_name="consents")
    goal = models.ForeignKey(Goal, on_delete=models.PROTECT, related_name="consents")
    goal_revision = models.PositiveIntegerField()
    effect = models.ForeignKey(
        "approvals.Effect", on_delete=models.PROTECT, null=True, blank=True, related_name="grants"
    )
    connections = models.JSONField(default=list, blank=True)
    digest = models.CharField(max_length=64)
    request_digest = models.CharField(max_length=64, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    revoked_by = models.CharField(max_length=200, blank=True)
    revoked_reason = models.TextField(blank=True)

    class Meta:
        ordering = ["-created_at"]
        verbose_name = "grant"
        constraints = [
            models.UniqueConstraint(
                fields=["effect", "request_digest"],
                condition=Q(purpose="recover"),
                name="consent_one_look_per_request",
            ),
            models.CheckConstraint(
                condition=~Q(purpose="recover") | (Q(effect__isnull=False) & ~Q(request_digest="")),
                name="consent_to_look_names_effect",
            ),
        ]

    def __str__(self) -> str:
        return f"grant to {self.purpose} {str(self.pk)[:8]}"


class ContactBudget(models.Model):
    """How many contacts of one kind a grant allows, and how many were made. Never counts down."""

    consent = models.ForeignKey(Consent, on_delete=models.PROTECT, related_name="budgets")
    contact = models.CharField(max_length=8, choices=[(c.value, c.value) for c in Contact])
    cap = models.PositiveSmallIntegerField()
    spent = models.PositiveSmallIntegerField(default=0)

    class Meta:
        ordering = ["consent", "contact"]
        constraints = [
            models.UniqueConstraint(fields=["consent", "contact"], name="budget_one_per_contact"),
            models.CheckConstraint(condition=Q(spent__lte=F("cap")), name="budget_within_cap"),
        ]

    def __str__(self) -> str:
        return f"{self.contact} {self.spent}/{self.cap}"


class Job(models.Model):
    """One attempt of one process at one piece of work: never taken over, never tried again.

    `holder` names the process (`guards.process.this_process`), `fence` grows with the claim.
    `quiesced_at` says that the transport was closed under that fence: nothing of it can still
    arrive. `outcome` and `reason` are the result, `looks_at` the effect that a later look is about.
    """

    class Kind(models.TextChoices):
        CONNECT = "connect"
        PREVIEW = "preview"
        EXECUTE = "execute"
        RECOVER = "recover"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=8, choices=Kind.choices)
    consent = models.OneToOneField(
        Consent, on_delete=models.PROTECT, null=True, blank=True, related_name="job"
    )
    looks_at = models.ForeignKey(
        "approvals.Effect", on_delete=models.PROTECT, null=True, blank=True, related_name="looks"
    )
    created_at = models.DateTimeField(default=timezone.now)
    holder = models.CharField(max_length=200, blank=True)
    fence = models.PositiveIntegerField(default=0)
    attempts = models.PositiveSmallIntegerField(default=0)
    claimed_at = models.DateTimeField(null=True, blank=True)
    deadline = models.DateTimeField(null=True, blank=True)
    quiesced_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    outcome = models.CharField(max_length=40, blank=True)
    reason = models.CharField(max_length=64, blank=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(condition=Q(attempts__lte=1), name="job_one_attempt"),
            models.CheckConstraint(
                condition=Q(attempts=0)
                | (
                    ~Q(holder="")
                    & Q(fence__gte=1)
                    & Q(claimed_at__isnull=False)
                    & Q(deadline__isnull=False)
                ),
                name="job_claim_is_whole",
            ),
            models.CheckConstraint(
                condition=Q(kind="execute") | Q(consent__isnull=False),
                name="job_apart_from_acts_has_grant",
            ),
            models.CheckConstraint(
                condition=~Q(kind="recover")
                | (Q(looks_at__isnull=False) & Q(consent__isnull=False)),
                name="job_look_has_effect_and_grant",
            ),
            models.CheckConstraint(
                condition=Q(finished_at__isnull=True) | ~Q(outcome=""),
                name="job_finished_has_outcome",
            ),
        ]
        indexes = [
            # The sweep: jobs that somebody holds, or that nobody has taken.
            models.Index(fields=["finished_at", "created_at"], name="job_unfinished"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {str(self.pk)[:8]}"

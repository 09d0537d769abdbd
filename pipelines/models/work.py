"""Work as it went: pipelines, their stages, and the executor's turn."""

from __future__ import annotations

import uuid

from django.db import connection, models
from django.db.models import Q
from django.utils import timezone


class Pipeline(models.Model):
    """One message's work, from plan to reply. `error` is for the operator and never mailed.

    `failing` says that a stage has failed and only the reply is left. `notice_due` is the outbox
    of the fixed text after an interruption: set with it in one transaction, cleared once the mail
    is under way. `resumptions` counts how often an operator had it go on after an interruption.
    `acknowledged_at` is when the requester was told that it takes a while. `files_at` is when its
    own directory was filled with the message's attachments.
    """

    class Status(models.TextChoices):
        PLANNED = "planned"
        QUEUED = "queued"
        RUNNING = "running"
        WAITING_APPROVAL = "waiting_approval", "waiting for approval"
        COMPLETED = "completed"
        FAILED = "failed"
        CANCELLED = "cancelled"
        INTERRUPTED = "interrupted"

    #: Pipelines a worker may take.
    DUE = frozenset({Status.PLANNED, Status.QUEUED})
    #: Pipelines that have ended.
    ENDED = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.INTERRUPTED})

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    message = models.OneToOneField(
        "mail.Message", on_delete=models.PROTECT, related_name="pipeline"
    )
    identity = models.ForeignKey(
        "guards.Identity", on_delete=models.PROTECT, related_name="pipelines"
    )
    requester = models.CharField(max_length=254)
    status = models.CharField(max_length=20, choices=Status.choices, default=Status.PLANNED)
    planner = models.CharField(max_length=80, default="none")
    plan = models.JSONField(default=list)
    refused_rule = models.CharField(max_length=32, blank=True)
    current = models.PositiveIntegerField(default=0)
    write_set = models.JSONField(default=list)
    pipe = models.JSONField(default=dict)
    error = models.TextField(blank=True)
    failing = models.BooleanField(default=False)
    notice_due = models.BooleanField(default=False)
    resumptions = models.PositiveIntegerField(default=0)
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    files_at = models.DateTimeField(null=True, blank=True)
    claimed_by = models.CharField(max_length=200, blank=True)
    fence = models.PositiveIntegerField(default=0)
    lease_until = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]
        indexes = [
            # Recovery looks for expired leases, the console for those of a status.
            models.Index(fields=["status", "created_at"], name="pipeline_status"),
            # Workers look for due rows, oldest first, however many there are.
            models.Index(
                fields=["created_at"],
                condition=Q(status__in=["planned", "queued"]),
                name="pipeline_due",
            ),
            # The sweep of requesters who have not been told yet.
            models.Index(
                fields=["notice_due"], condition=Q(notice_due=True), name="pipeline_notice"
            ),
        ]

    def __str__(self) -> str:
        return f"pipeline-{self.id}"


class Stage(models.Model):
    """One bounded step of a pipeline: claimed before it runs, never run twice by itself.

    `digest` is the signed form's, frozen at planning and compared at execution. `output` is cut to
    what the console shows; the whole value lives in the pipeline's pipe until it ends. `usage` is
    what all its runs have cost. `retriable`: its last run failed in a way that another may avoid.
    """

    class Status(models.TextChoices):
        PENDING = "pending"
        CLAIMED = "claimed"
        RUNNING = "running"
        WAITING_APPROVAL = "waiting_approval", "waiting for approval"
        SUCCEEDED = "succeeded"
        FAILED = "failed"
        INCOMPLETE = "incomplete"
        CANCELLED = "cancelled"
        INTERRUPTED = "interrupted"

    #: Stages that hold a claim.
    HELD = frozenset({Status.CLAIMED, Status.RUNNING})

    pipeline = models.ForeignKey(Pipeline, on_delete=models.CASCADE, related_name="stages")
    position = models.PositiveIntegerField()
    command = models.CharField(max_length=64)
    digest = models.CharField(max_length=64, blank=True)
    args = models.JSONField(default=dict)
    runner = models.CharField(max_length=8)
    mode = models.CharField(max_length=12, default="process")
    status = models.CharField(max_length=20, choices=Status.choices, default=Status.PENDING)
    attempt = models.PositiveIntegerField(default=0)
    claimed_by = models.CharField(max_length=200, blank=True)
    fence = models.PositiveIntegerField(default=0)
    lease_until = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    argv = models.JSONField(default=list)
    exit_code = models.IntegerField(null=True, blank=True)
    output = models.TextField(blank=True)
    output_size = models.PositiveIntegerField(default=0)
    stderr = models.TextField(blank=True)
    error = models.TextField(blank=True)
    usage = models.JSONField(default=dict)
    retriable = models.BooleanField(default=False)

    class Meta:
        ordering = ["pipeline", "position"]
        constraints = [
            models.UniqueConstraint(fields=["pipeline", "position"], name="stage_position_once"),
            models.CheckConstraint(
                condition=~Q(status__in=["claimed", "running"]) | Q(lease_until__isnull=False),
                name="stage_held_has_lease",
            ),
        ]
        indexes = [
            # Needs you: workers that were refused for want of a sandbox, newest first.
            models.Index(
                fields=["-finished_at"],
                condition=Q(status="failed", runner="claude"),
                name="stage_worker_failed",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.position}. {self.command}"


class ExecutorTurn(models.Model):
    """One row, locked while a pipeline is claimed, so that the count of running ones is true."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(id=1), name="executor_turn_is_one_row"),
        ]

    def __str__(self) -> str:
        return "the executor's turn"

    @classmethod
    def take(cls) -> None:
        """Wait for the turn; it ends with the transaction (SQLite's own lock does it there)."""
        if connection.vendor == "sqlite":
            return
        if cls.objects.select_for_update().first() is None:
            ExecutorTurn.objects.bulk_create([ExecutorTurn(pk=1)], ignore_conflicts=True)
            cls.objects.select_for_update().get(pk=1)

"""Missions: bounded work for a `claude` worker, its contract, its results, what it asked for."""

from __future__ import annotations

import json
import uuid

from django.db import models
from django.db.models import Q
from django.utils import timezone

from pipelines.models.work import Pipeline, Stage


class Mission(models.Model):
    """One contract between a stage and its worker (DES-027, DES-028).

    `contract` is frozen by trigger: what the worker reads is what was admitted. `write_set` is the
    contract's as missions compare it (`project:path`); it counts while the mission is open and not
    released. `usd` and `turns` are what all its rounds have cost. `dispatched_at` is set before the
    first worker reaches anything: a mission without it has cost and changed nothing. `evaluator`
    and `evaluator_digest` are pinned when it opens: who judges, and by which checks.
    """

    class Status(models.TextChoices):
        OPEN = "open"
        CLOSED = "closed"
        FAILED = "failed"
        ESCALATED = "escalated"
        ABANDONED = "abandoned"

    #: Missions that have ended.
    ENDED = frozenset({Status.CLOSED, Status.FAILED, Status.ESCALATED, Status.ABANDONED})

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    pipeline = models.ForeignKey(Pipeline, on_delete=models.PROTECT, related_name="missions")
    stage = models.ForeignKey(Stage, on_delete=models.PROTECT, related_name="missions")
    attempt = models.PositiveIntegerField(default=1)
    status = models.CharField(max_length=12, choices=Status.choices, default=Status.OPEN)
    command = models.CharField(max_length=64)
    digest = models.CharField(max_length=64, blank=True)
    contract = models.JSONField()
    contract_sha256 = models.CharField(max_length=64)
    write_set = models.JSONField(default=list)
    round = models.PositiveIntegerField(default=1)
    rounds = models.PositiveIntegerField(default=1)
    max_usd = models.DecimalField(max_digits=12, decimal_places=6)
    usd = models.DecimalField(max_digits=12, decimal_places=6, default=0)
    turns = models.PositiveIntegerField(default=0)
    worker = models.CharField(max_length=200)
    evaluator = models.CharField(max_length=200)
    evaluator_digest = models.CharField(max_length=64)
    session_id = models.CharField(max_length=64, blank=True)
    token = models.ForeignKey(
        "guards.ApiToken", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    opened_at = models.DateTimeField(default=timezone.now)
    dispatched_at = models.DateTimeField(null=True, blank=True)
    closed_at = models.DateTimeField(null=True, blank=True)
    closed_by = models.CharField(max_length=200, blank=True)
    reason = models.TextField(blank=True)
    released_at = models.DateTimeField(null=True, blank=True)
    released_by = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering = ["-opened_at"]
        constraints = [
            models.UniqueConstraint(fields=["stage", "attempt"], name="mission_once_per_attempt"),
            models.CheckConstraint(
                condition=Q(round__gte=1) & Q(round__lte=models.F("rounds")),
                name="mission_round_within_rounds",
            ),
            models.CheckConstraint(
                condition=Q(status="open") | Q(closed_at__isnull=False),
                name="mission_ended_has_time",
            ),
            models.CheckConstraint(
                condition=~Q(status="abandoned") | Q(dispatched_at__isnull=True),
                name="mission_abandoned_only_undispatched",
            ),
        ]
        indexes = [
            # Admission looks at every open mission; the budgets at those of a day.
            models.Index(fields=["status", "opened_at"], name="mission_status"),
            # What missions have cost, by the day they were opened.
            models.Index(fields=["opened_at"], name="mission_opened"),
        ]

    def __str__(self) -> str:
        return f"mission {str(self.pk)[:8]}"


class MissionResult(models.Model):
    """What a worker handed in for one round: append-only, one per round, times stamped by us.

    `output` is the value for the pipe (text commands: a string). `files` names files in the
    pipeline's directory, `files_changed` paths below the working directory, both as claimed: what
    really changed is looked at afterwards.
    """

    class Verdict(models.TextChoices):
        PASS = "pass"  # noqa: S105 (a verdict)
        FAIL = "fail"
        ESCALATE = "escalate"

    mission = models.ForeignKey(Mission, on_delete=models.PROTECT, related_name="results")
    round = models.PositiveIntegerField()
    verdict = models.CharField(max_length=8, choices=Verdict.choices)
    confidence = models.FloatField()
    prose = models.TextField()
    output = models.JSONField(null=True, blank=True)
    files = models.JSONField(default=list)
    files_changed = models.JSONField(default=list)
    open_questions = models.JSONField(default=list)
    submitted_at = models.DateTimeField(default=timezone.now)
    submitted_by = models.CharField(max_length=200)

    class Meta:
        ordering = ["mission", "round"]
        constraints = [
            models.UniqueConstraint(fields=["mission", "round"], name="result_once_per_round"),
            models.CheckConstraint(
                condition=Q(confidence__gte=0) & Q(confidence__lte=1),
                name="result_confidence_is_a_share",
            ),
        ]

    def __str__(self) -> str:
        return f"round {self.round}: {self.verdict}"


class Reflection(models.Model):
    """A look back at one round, before the next: append-only, one per round."""

    class Recommendation(models.TextChoices):
        CONTINUE = "continue"
        PIVOT = "pivot"
        STOP = "stop"
        ESCALATE = "escalate"

    mission = models.ForeignKey(Mission, on_delete=models.PROTECT, related_name="reflections")
    round = models.PositiveIntegerField()
    converging = models.BooleanField()
    signals = models.JSONField(default=list)
    recommendation = models.CharField(max_length=8, choices=Recommendation.choices)
    reason = models.TextField()
    created_at = models.DateTimeField(default=timezone.now)
    created_by = models.CharField(max_length=200)

    class Meta:
        ordering = ["mission", "round"]
        constraints = [
            models.UniqueConstraint(fields=["mission", "round"], name="reflection_once_per_round"),
        ]

    def __str__(self) -> str:
        return f"round {self.round}: {self.recommendation}"


class MissionEvent(models.Model):
    """One thing that happened to a mission: append-only, beside the event in the log."""

    mission = models.ForeignKey(Mission, on_delete=models.PROTECT, related_name="events")
    at = models.DateTimeField(default=timezone.now)
    kind = models.CharField(max_length=32)
    actor = models.CharField(max_length=200)
    facts = models.JSONField(default=dict)

    class Meta:
        ordering = ["mission", "id"]

    def __str__(self) -> str:
        return self.kind


class ToolCall(models.Model):
    """One tool call of a worker that waits for the owner: exactly this tool with this input.

    `digest` is SHA-256 over the canonical form of tool and input. The same session resumes when it
    is answered, and finds that call, and no other, allowed once.
    """

    class State(models.TextChoices):
        WAITING = "waiting"
        ALLOWED = "allowed"
        REJECTED = "rejected"
        USED = "used"
        EXPIRED = "expired"
        WITHDRAWN = "withdrawn"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    mission = models.ForeignKey(Mission, on_delete=models.PROTECT, related_name="tool_calls")
    round = models.PositiveIntegerField(default=1)
    tool = models.CharField(max_length=200)
    input = models.JSONField()
    digest = models.CharField(max_length=64)
    state = models.CharField(max_length=12, choices=State.choices, default=State.WAITING)
    hold = models.ForeignKey(
        "approvals.Hold", on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    reason = models.TextField(blank=True)
    asked_at = models.DateTimeField(default=timezone.now)
    answered_at = models.DateTimeField(null=True, blank=True)
    used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["asked_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["mission", "digest"],
                condition=Q(state__in=["waiting", "allowed"]),
                name="tool_call_asked_once",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tool} of {self.mission}"

    @property
    def exact_text(self) -> str:
        """The input as people read it: in ASCII, so that nothing in it can hide or turn around."""
        return json.dumps(self.input, indent=2, sort_keys=True)

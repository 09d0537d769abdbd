"""What was written to leave, and the files that go with it."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q
from django.utils import timezone

from mail.models.accounts import Account
from mail.models.messages import Message, Thread


class Outbound(models.Model):
    """One message of ours, composed once. Its bytes live in the approval's artifact, not here.

    `origin` says who wrote it (`pipeline:UUID`, `operator:NAME`); `in_reply_to` the message it
    answers. `automatic` mail carries `Auto-Submitted` and counts against the caps: above the hourly
    one it waits as `queued`. `submitted_at` is when it took its place under the caps; `filed_at`
    when we began to append a copy to Sent, which from then on proves nothing about the server;
    `reason` a stable word for how it ended.
    """

    class Status(models.TextChoices):
        DRAFT = "draft"
        QUEUED = "queued"
        HELD = "held"
        SENDING = "sending"
        ACCEPTED = "accepted"
        VERIFIED = "verified"
        UNKNOWN = "unknown"
        FAILED = "failed"
        REJECTED = "rejected"
        CANCELLED = "cancelled"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="outbound")
    in_reply_to = models.ForeignKey(
        Message, on_delete=models.PROTECT, null=True, blank=True, related_name="replies"
    )
    thread = models.ForeignKey(
        Thread, on_delete=models.SET_NULL, null=True, blank=True, related_name="outbound"
    )
    origin_type = models.CharField(max_length=64)
    origin_id = models.CharField(max_length=64)
    to = models.JSONField(default=list)
    subject = models.TextField()
    text = models.TextField()
    message_id = models.CharField(max_length=998, unique=True)
    automatic = models.BooleanField(default=False)
    executes = models.BooleanField(default=False)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.DRAFT)
    hold = models.ForeignKey(
        "approvals.Hold",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
    )
    effect = models.ForeignKey(
        "approvals.Effect",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
    )
    reason = models.CharField(max_length=64, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    submitted_at = models.DateTimeField(null=True, blank=True)
    filed_at = models.DateTimeField(null=True, blank=True)
    settled_at = models.DateTimeField(null=True, blank=True)

    #: Outgoing mail whose end is known.
    SETTLED = frozenset(
        {
            Status.ACCEPTED,
            Status.VERIFIED,
            Status.UNKNOWN,
            Status.FAILED,
            Status.REJECTED,
            Status.CANCELLED,
        }
    )

    class Meta:
        ordering = ["-created_at"]
        verbose_name = "outgoing message"
        indexes = [
            # The caps on automatic mail, by identity and hour or by recipient and day.
            models.Index(fields=["automatic", "submitted_at"], name="outbound_caps"),
            # The sweep of what waits for its turn.
            models.Index(
                fields=["created_at"], condition=Q(status="queued"), name="outbound_queued"
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["origin_type", "origin_id"],
                name="outbound_once_per_origin",
            ),
        ]

    def __str__(self) -> str:
        return f"to {', '.join(self.to)}"


class OutboundFile(models.Model):
    """A file that leaves with an outgoing message; its bytes lie in the store under their digest.

    Written with the draft, outside of whose making it never changes: a draft that is rewritten gets
    other rows. The digest is among what an approval binds.
    """

    outbound = models.ForeignKey(Outbound, on_delete=models.CASCADE, related_name="files")
    position = models.PositiveIntegerField()
    name = models.CharField(max_length=255)
    type = models.CharField(max_length=127)
    size = models.PositiveIntegerField()
    sha256 = models.CharField(max_length=64)

    class Meta:
        ordering = ["outbound", "position"]
        constraints = [
            models.UniqueConstraint(
                fields=["outbound", "position"], name="outbound_file_position_once"
            ),
        ]

    def __str__(self) -> str:
        return self.name

"""What arrived: messages, what they are worth, where they lie, what they are made of."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone

from guards.types import TrustLevel, TrustReason
from mail.models.accounts import Account


class Thread(models.Model):
    """Messages of one account that answer each other; `root_id` is the first one's Message-ID."""

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="threads")
    root_id = models.CharField(max_length=998)
    subject = models.CharField(max_length=500, blank=True)
    last_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-last_at"]
        constraints = [
            models.UniqueConstraint(fields=["account", "root_id"], name="thread_root_once"),
        ]

    def __str__(self) -> str:
        return self.root_id  # its subject may be covered


class Message(models.Model):
    """One message of one account, once per raw digest. Facts as received; verdicts with evidence.

    `number` is the short per-account id of `inbox`. `sha256` names the raw bytes in the store.
    `trust_*` are the latest verdict, older ones stay in TrustRecord. `rule`, `verdict` and `action`
    repeat the one Decision made at ingest. `execution` is the outbox for pipelines: `due` rows are
    taken by them, by conditional UPDATE. `replay_key` is what the ledger will know it by, empty for
    mail that can start nothing.
    """

    class Execution(models.TextChoices):
        NONE = "none"
        DUE = "due"
        TAKEN = "taken"
        REFUSED = "refused"

    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="messages")
    number = models.PositiveIntegerField()
    thread = models.ForeignKey(
        Thread,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="messages",
    )
    sha256 = models.CharField(max_length=64)
    size = models.PositiveIntegerField()
    received_at = models.DateTimeField(default=timezone.now)
    internal_date = models.DateTimeField(null=True, blank=True)
    sender = models.CharField(max_length=254, blank=True)
    sender_name = models.CharField(max_length=500, blank=True)
    subject = models.TextField(blank=True)
    date = models.DateTimeField(null=True, blank=True)
    message_id = models.CharField(max_length=998, blank=True)
    in_reply_to = models.CharField(max_length=998, blank=True)
    references = models.JSONField(default=list)
    text = models.TextField(blank=True)
    has_html = models.BooleanField(default=False)
    defects = models.JSONField(default=list)
    quarantine = models.CharField(max_length=64, blank=True)
    truncated = models.BooleanField(default=False)
    seen = models.BooleanField(default=False)
    loop_reason = models.CharField(max_length=16, blank=True)
    parser_version = models.PositiveSmallIntegerField(default=1)

    trust_level = models.CharField(max_length=12, choices=[(t.value, t.value) for t in TrustLevel])
    trust_reason = models.CharField(
        max_length=32, choices=[(t.value, t.value) for t in TrustReason]
    )
    trust_evidence = models.JSONField(default=dict)
    permission = models.CharField(max_length=3, default="---")
    action = models.CharField(max_length=16)
    verdict = models.CharField(max_length=8)
    rule = models.CharField(max_length=32)
    execution = models.CharField(max_length=8, choices=Execution.choices, default=Execution.NONE)
    replay_key = models.CharField(max_length=64, blank=True)
    revealed_at = models.DateTimeField(null=True, blank=True)
    released_at = models.DateTimeField(null=True, blank=True)
    set_aside_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["account", "sha256"], name="message_once_per_account"),
            models.UniqueConstraint(fields=["account", "number"], name="message_number_once"),
        ]
        indexes = [
            # Threading and loop guard look a message up by its id.
            models.Index(fields=["account", "message_id"], name="message_msgid"),
            # The sweep of what pipelines have not taken yet.
            models.Index(fields=["execution"], condition=Q(execution="due"), name="message_due"),
            # A second copy of a signed text that is still waiting to start something.
            models.Index(fields=["replay_key"], condition=~Q(replay_key=""), name="message_replay"),
            # The console's list and plots by level and day.
            models.Index(fields=["trust_level", "received_at"], name="message_trust_day"),
        ]

    def __str__(self) -> str:
        return f"{self.account.name}/{self.number}"


class TrustRecord(models.Model):
    """One verdict about one message, append-only: a newer key or parser never erases the older."""

    message = models.ForeignKey(Message, on_delete=models.PROTECT, related_name="trust_records")
    at = models.DateTimeField(default=timezone.now)
    version = models.PositiveSmallIntegerField(default=1)
    level = models.CharField(max_length=12)
    reason = models.CharField(max_length=32)
    evidence = models.JSONField(default=dict)
    cause = models.CharField(max_length=64, default="ingest")

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.level} ({self.reason})"


class Location(models.Model):
    """Where a message lies on its server."""

    message = models.ForeignKey(Message, on_delete=models.CASCADE, related_name="locations")
    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="+")
    folder = models.CharField(max_length=255)
    uidvalidity = models.PositiveBigIntegerField()
    uid = models.PositiveBigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["account", "folder", "uidvalidity", "uid"], name="location_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.folder}:{self.uidvalidity}:{self.uid}"


class Recipient(models.Model):
    """One address a message was written to."""

    class Kind(models.TextChoices):
        TO = "to"
        CC = "cc"
        REPLY_TO = "reply-to"

    message = models.ForeignKey(Message, on_delete=models.CASCADE, related_name="recipients")
    kind = models.CharField(max_length=8, choices=Kind.choices)
    name = models.CharField(max_length=500, blank=True)
    address = models.CharField(max_length=254)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return self.address


class Part(models.Model):
    """One leaf of a message's MIME tree; its bytes are cut from the raw message when asked for."""

    message = models.ForeignKey(Message, on_delete=models.CASCADE, related_name="parts")
    path = models.CharField(max_length=255)
    type = models.CharField(max_length=127)
    name = models.CharField(max_length=255, blank=True)
    size = models.PositiveIntegerField()
    sha256 = models.CharField(max_length=64)
    disposition = models.CharField(max_length=16, blank=True)
    is_attachment = models.BooleanField(default=False)
    is_text = models.BooleanField(default=False)
    is_html = models.BooleanField(default=False)
    is_signed = models.BooleanField(default=False)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return self.name or self.type

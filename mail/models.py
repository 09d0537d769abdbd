"""The tables of mail: accounts, what arrived, and what was written to leave."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q
from django.utils import timezone

from guards.types import TrustLevel, TrustReason
from mail.types import Provider


class Account(models.Model):
    """One mailbox of an identity, with the way out that belongs to it.

    Secrets are references, never values. TLS follows the ports (DES-023). `from_address` is what
    outgoing mail carries; empty means the identity's own address.
    """

    class Protocol(models.TextChoices):
        IMAP = "imap", "IMAP"

    class State(models.TextChoices):
        NEW = "new"
        OK = "ok"
        FAILING = "failing"
        DISABLED = "disabled"

    class Interval(models.TextChoices):
        M1 = "1m", "every minute"
        M5 = "5m", "every 5 minutes"
        M10 = "10m", "every 10 minutes"
        M15 = "15m", "every 15 minutes"
        M30 = "30m", "every 30 minutes"
        H1 = "1h", "every hour"
        H2 = "2h", "every 2 hours"
        NEVER = "n", "never"

    identity = models.ForeignKey(
        "guards.Identity", on_delete=models.PROTECT, related_name="accounts"
    )
    name = models.SlugField(max_length=64, unique=True)
    protocol = models.CharField(max_length=8, choices=Protocol.choices, default=Protocol.IMAP)
    provider = models.CharField(
        max_length=16,
        choices=[(p.value, p.value) for p in Provider],
        default=Provider.GENERIC.value,
    )
    host = models.CharField(max_length=255)
    port = models.PositiveIntegerField(default=993)
    username = models.CharField(max_length=255)
    secret_ref = models.CharField(max_length=500)
    folder = models.CharField(max_length=255, default="INBOX")
    sent_folder = models.CharField(max_length=255, blank=True)
    archive_folder = models.CharField(max_length=255, blank=True)
    server_files_sent = models.BooleanField(default=False)
    authserv_id = models.CharField(max_length=255, blank=True)
    smtp_host = models.CharField(max_length=255, blank=True)
    smtp_port = models.PositiveIntegerField(default=587)
    smtp_username = models.CharField(max_length=255, blank=True)
    smtp_secret_ref = models.CharField(max_length=500, blank=True)
    from_address = models.EmailField(max_length=254, blank=True)
    sign_outbound = models.BooleanField(default=False)
    preserves_mime = models.BooleanField(default=True)
    poll_interval = models.CharField(max_length=4, choices=Interval.choices, default=Interval.M5)
    tls_skip_verify = models.BooleanField(default=False)
    state = models.CharField(max_length=8, choices=State.choices, default=State.NEW)
    failures = models.PositiveIntegerField(default=0)
    last_error = models.CharField(max_length=500, blank=True)
    last_success_at = models.DateTimeField(null=True, blank=True)
    next_poll_at = models.DateTimeField(null=True, blank=True)
    revision = models.PositiveIntegerField(default=0)
    next_number = models.PositiveIntegerField(default=1, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                condition=Q(sign_outbound=False) | Q(preserves_mime=True),
                name="account_signs_only_where_mime_survives",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class AccountLease(models.Model):
    """Who watches or polls an account right now: one process at a time, with a fence."""

    account = models.OneToOneField(
        Account, on_delete=models.CASCADE, primary_key=True, related_name="lease"
    )
    holder = models.CharField(max_length=200, blank=True)
    fence = models.PositiveIntegerField(default=0)
    expires_at = models.DateTimeField(null=True, blank=True)
    watching = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"{self.account} held by {self.holder or 'nobody'}"


class FolderCursor(models.Model):
    """How far a folder was read: it moves only in the transaction that stored the rows.

    `first_pass_done` is false until the first pass over this account's folder has reached its end:
    until then nothing notifies and nothing starts.
    """

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="cursors")
    folder = models.CharField(max_length=255)
    uidvalidity = models.PositiveBigIntegerField(null=True, blank=True)
    last_uid = models.PositiveBigIntegerField(default=0)
    modseq = models.PositiveBigIntegerField(null=True, blank=True)
    first_pass_done = models.BooleanField(default=False)
    first_pass_until = models.PositiveBigIntegerField(null=True, blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["account", "folder"], name="cursor_once_per_folder"),
        ]

    def __str__(self) -> str:
        return f"{self.account}/{self.folder} at {self.last_uid}"


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


class Outbound(models.Model):
    """One message of ours, composed once. Its bytes live in the approval's artifact, not here.

    `origin` says who wrote it (`pipeline:UUID`, `operator:NAME`); `in_reply_to` the message it
    answers. `automatic` mail carries `Auto-Submitted` and counts against the caps: above the hourly
    one it waits as `queued`. `submitted_at` is when it took its place under the caps; `reason` a
    stable word for how it ended.
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

"""Mailboxes of identities, who works on one right now, and how far its folders were read."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone

from mail.types import Provider


class Account(models.Model):
    """One mailbox of an identity, with the way out that belongs to it.

    Secrets are references, never values. TLS follows the ports (DES-023). `from_address` is what
    outgoing mail carries; empty means the identity's own address. A `gmail` account is read through
    its read-only connection (`approvals.Connection`), which has the credentials; `username` is its
    mailbox, and `folder` a label.
    """

    class Protocol(models.TextChoices):
        IMAP = "imap", "IMAP"
        GMAIL = "gmail", "Gmail (read-only)"

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
    secret_ref = models.CharField(max_length=500, blank=True)
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
    bcc_self = models.BooleanField(default=False)
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
    until then nothing notifies and nothing starts. `history_id` is Gmail's own cursor: how far the
    mailbox's history was turned into `GmailMessage` rows.
    """

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="cursors")
    folder = models.CharField(max_length=255)
    uidvalidity = models.PositiveBigIntegerField(null=True, blank=True)
    last_uid = models.PositiveBigIntegerField(default=0)
    modseq = models.PositiveBigIntegerField(null=True, blank=True)
    first_pass_done = models.BooleanField(default=False)
    first_pass_until = models.PositiveBigIntegerField(null=True, blank=True)
    history_id = models.PositiveBigIntegerField(null=True, blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["account", "folder"], name="cursor_once_per_folder"),
        ]

    def __str__(self) -> str:
        return f"{self.account}/{self.folder} at {self.last_uid}"


class GmailMessage(models.Model):
    """A message of a Gmail label that is known by Gmail's ids, and the UID that we gave it.

    Written in the transaction that moves `FolderCursor.history_id`, before the message is fetched:
    what is not fetched yet is found again by its UID. `uidvalidity` stands for the mailbox.
    """

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="+")
    folder = models.CharField(max_length=255)
    uidvalidity = models.PositiveBigIntegerField()
    uid = models.PositiveBigIntegerField()
    gmail_id = models.CharField(max_length=64)
    thread_id = models.CharField(max_length=64)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["account", "folder", "uidvalidity", "uid"], name="gmail_uid_once"
            ),
            models.UniqueConstraint(
                fields=["account", "folder", "uidvalidity", "gmail_id"], name="gmail_message_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.folder}:{self.uid} is {self.gmail_id}"

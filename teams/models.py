"""The tables of the common room: projects and the one tamper-evident record."""

from __future__ import annotations

from django.core.validators import RegexValidator
from django.db import models
from django.utils import timezone

from teams.chain import ORIGIN
from teams.fields import CanonicalJSONField


class Project(models.Model):
    """A body of work with its own slug, root directory and git remote.

    A slug has no `__` (it separates project and agent in session names).
    """

    slug = models.SlugField(
        max_length=64,
        unique=True,
        validators=[RegexValidator(r"__", "A slug has no double underscore.", inverse_match=True)],
    )
    name = models.CharField(max_length=200)
    root = models.CharField(max_length=500, blank=True)
    git_remote = models.CharField(max_length=500, blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["slug"]

    def __str__(self) -> str:
        return self.slug


class Event(models.Model):
    """One thing that happened. Append-only by trigger.

    `seq` and `hash` are assigned under the lock on the head. `hash` is SHA-256 over the RFC 8785
    form of the other fields with `prev_hash`. `facts` hold no body and no instruction.
    """

    seq = models.PositiveBigIntegerField(primary_key=True)
    at = models.DateTimeField()
    kind = models.CharField(max_length=64)
    subject_type = models.CharField(max_length=64)
    subject_id = models.CharField(max_length=64)
    actor = models.CharField(max_length=200)
    project = models.CharField(max_length=64, blank=True)
    project_seq = models.PositiveBigIntegerField(null=True, blank=True)
    facts = CanonicalJSONField(default=dict)
    prev_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64)

    class Meta:
        ordering = ["seq"]
        constraints = [
            models.UniqueConstraint(
                fields=["project", "project_seq"],
                condition=~models.Q(project=""),
                name="event_project_seq_once",
            ),
        ]
        indexes = [
            # The events about one row, for its page.
            models.Index(fields=["subject_type", "subject_id", "seq"], name="event_subject"),
            # The feed filtered by kind.
            models.Index(fields=["kind", "seq"], name="event_kind"),
        ]

    def __str__(self) -> str:
        return f"#{self.seq} {self.kind}"


class LogPosition(models.Model):
    """The head of the log: one row, locked last in every transaction that appends."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    seq = models.PositiveBigIntegerField(default=0)
    hash = models.CharField(max_length=64, default=ORIGIN)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(id=1), name="log_position_is_one_row"),
        ]

    def __str__(self) -> str:
        return f"head at {self.seq}"


class ProjectPosition(models.Model):
    """How many events a project has: written only under the lock on `LogPosition`.

    A table of its own, since whoever edits a project holds that project's row and would otherwise
    wait for the head in the opposite order.
    """

    project = models.CharField(primary_key=True, max_length=64)
    seq = models.PositiveBigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.project} at {self.seq}"


class Checkpoint(models.Model):
    """A head signed by the installation key (Ed25519), so that a rewritten or cut log shows.

    `signature` is base64 over `countersign-log/1`, sequence and hash; `key_id` the first 16 hex
    digits of the public key's SHA-256. Append-only by trigger.
    """

    seq = models.PositiveBigIntegerField(unique=True)
    hash = models.CharField(max_length=64)
    key_id = models.CharField(max_length=16)
    signature = models.CharField(max_length=128)
    signed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["seq"]

    def __str__(self) -> str:
        return f"checkpoint at {self.seq}"

"""Signed commands, and the rules that plan with them."""

from __future__ import annotations

from django.db import models


class Command(models.Model):
    """One command as its document says it: `document` is the explicitly set fields, as signed.

    The row counts for nothing by itself: the signature is checked over `document` at load and
    again at each execution (DES-034). `digest` is SHA-256 of the canonical bytes; `serial` and
    `runner` repeat the document for lists.

    `draft` is another document of that name, written in the console and not signed yet: it never
    runs, and takes the place of `document` when the owner's signature over it comes back.
    `draft_text` is its YAML as it was typed.
    """

    class SignatureState(models.TextChoices):
        OK = "ok"
        MISSING = "missing"
        INVALID = "invalid"
        WRONG_KEY = "wrong-key", "wrong key"
        EXPIRED_KEY = "expired-key", "expired key"
        OPERATIONAL = "operational", "could not be checked"

    name = models.SlugField(max_length=64, unique=True)
    document = models.JSONField()
    signature = models.TextField(blank=True)
    digest = models.CharField(max_length=64)
    serial = models.PositiveIntegerField(default=0)
    highest_serial = models.PositiveIntegerField(default=0)
    highest_digest = models.CharField(max_length=64, blank=True)
    runner = models.CharField(max_length=8, default="claude")
    description = models.TextField(blank=True)
    signature_state = models.CharField(
        max_length=12, choices=SignatureState.choices, default=SignatureState.MISSING
    )
    signature_detail = models.CharField(max_length=500, blank=True)
    checked_at = models.DateTimeField(null=True, blank=True)
    loaded_from = models.CharField(max_length=500, blank=True)
    draft = models.JSONField(null=True, blank=True)
    draft_text = models.TextField(blank=True)
    draft_by = models.CharField(max_length=200, blank=True)
    draft_at = models.DateTimeField(null=True, blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Rule(models.Model):
    """One planning rule: who, what the executable text says, and which calls follow.

    `sender` is an exact address, a glob or empty (anybody who may execute). `kind` says how
    `match` is read: plain words that must all occur, or a linear-time regular expression
    (google-re2). `calls` is a list of `{"command": …, "args": {name: value | {"group": NAME}}}`.
    """

    class Kind(models.TextChoices):
        WORDS = "words", "all of these words"
        REGEX = "regex", "regular expression (RE2)"

    name = models.SlugField(max_length=64, unique=True)
    position = models.PositiveIntegerField(default=100)
    is_active = models.BooleanField(default=True)
    identity = models.ForeignKey(
        "guards.Identity",
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="rules",
    )
    sender = models.CharField(max_length=254, blank=True)
    kind = models.CharField(max_length=8, choices=Kind.choices, default=Kind.WORDS)
    match = models.TextField()
    calls = models.JSONField(default=list)
    hits = models.PositiveIntegerField(default=0, editable=False)
    last_hit_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ["position", "id"]

    def __str__(self) -> str:
        return self.name


class RuleHit(models.Model):
    """How many messages one rule planned on one day (UTC)."""

    rule = models.ForeignKey(Rule, on_delete=models.CASCADE, related_name="days")
    day = models.DateField()
    hits = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["rule", "day"]
        constraints = [
            models.UniqueConstraint(fields=["rule", "day"], name="rule_hits_once_a_day"),
        ]

    def __str__(self) -> str:
        return f"{self.rule} {self.day}: {self.hits}"

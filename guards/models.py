"""The tables of guards: who is known here, with which keys, and what each may ask."""

from __future__ import annotations

from typing import Any

from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q
from django.db.models.functions import Length, Lower
from django.utils import timezone

from guards.types import Action, Rule, Rwx, Verdict

fingerprint_validator = RegexValidator(
    r"\A[0-9A-F]{40}\Z", "A fingerprint is 40 upper-case hex digits."
)

models.CharField.register_lookup(Length)  # for the CHECKs below: REGEXP is Django's own on SQLite

_GLOB = Q(address__contains="*") | Q(address__contains="?") | Q(address__contains="[")


class Identity(models.Model):
    """Somebody this installation acts as, or knows as a person: one schema for both (DES-013).

    `email` is the pivot key and lower-case in its domain. `passphrase_ref` is a secret reference.
    """

    class Kind(models.TextChoices):
        HUMAN = "human"
        AGENT = "agent"

    class ReplyPolicy(models.TextChoices):
        AUTO = "auto", "send replies at once"
        APPROVE = "approve", "hold replies for approval"

    class Binding(models.TextChoices):
        REQUIRED = "required", "signed text must name this identity"
        OFF = "off", "not asked for"

    handle = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=200)
    kind = models.CharField(max_length=8, choices=Kind.choices, default=Kind.AGENT)
    email = models.EmailField(max_length=254)
    openpgp_fingerprint = models.CharField(
        max_length=40, blank=True, validators=[fingerprint_validator]
    )
    gpg_home = models.CharField(max_length=500, blank=True)
    passphrase_ref = models.CharField(max_length=500, blank=True)
    reply_policy = models.CharField(
        max_length=8, choices=ReplyPolicy.choices, default=ReplyPolicy.APPROVE
    )
    recipient_binding = models.CharField(
        max_length=8, choices=Binding.choices, default=Binding.REQUIRED
    )
    is_default = models.BooleanField(default=False)
    is_active = models.BooleanField(default=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name_plural = "identities"
        ordering = ["handle"]
        constraints = [
            models.UniqueConstraint(Lower("email"), name="identity_email_once"),
            models.UniqueConstraint(
                fields=["is_default"],
                condition=Q(is_default=True),
                name="identity_one_default",
            ),
            models.CheckConstraint(
                condition=Q(openpgp_fingerprint="") | Q(openpgp_fingerprint__length=40),
                name="identity_fingerprint_full",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} <{self.email}>"


class Contact(models.Model):
    """Somebody who writes to us: one exact address with aliases, or one glob pattern (DES-019).

    `address` is lower-case. `is_pattern` is derived from it by the service and checked here, since
    triggers on permissions and aliases read it.
    """

    name = models.CharField(max_length=200, blank=True)
    address = models.CharField(max_length=254, unique=True)
    is_pattern = models.BooleanField(default=False, editable=False)
    notes = models.TextField(blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["address"]
        constraints = [
            models.CheckConstraint(
                condition=(Q(is_pattern=True) & _GLOB) | (Q(is_pattern=False) & ~_GLOB),
                name="contact_pattern_flag_is_true",
            ),
            models.CheckConstraint(
                condition=Q(address=Lower("address")), name="contact_address_lower_case"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} <{self.address}>" if self.name else self.address


class ContactAlias(models.Model):
    """One more exact address of a contact. Unique in the whole book, addresses too (trigger)."""

    contact = models.ForeignKey(Contact, on_delete=models.CASCADE, related_name="aliases")
    address = models.CharField(max_length=254, unique=True)

    class Meta:
        verbose_name_plural = "contact aliases"
        ordering = ["address"]
        constraints = [
            models.CheckConstraint(
                condition=Q(address=Lower("address")) & ~_GLOB, name="alias_exact_and_lower_case"
            ),
        ]

    def __str__(self) -> str:
        return self.address


class PinnedKey(models.Model):
    """A public key whose primary fingerprint counts for one contact.

    `public_key` is the binary key with exactly one primary; `expires_at` is that primary's expiry.
    A key that is no longer wanted is marked `removed_at`, never deleted: verdicts refer to it.
    """

    contact = models.ForeignKey(Contact, on_delete=models.PROTECT, related_name="pins")
    fingerprint = models.CharField(max_length=40, validators=[fingerprint_validator])
    public_key = models.BinaryField()
    uid = models.CharField(max_length=500, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    pinned_by = models.CharField(max_length=200)
    pinned_at = models.DateTimeField(default=timezone.now)
    removed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-pinned_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["fingerprint"],
                condition=Q(removed_at=None),
                name="pin_fingerprint_counts_for_one_contact",
            ),
            models.CheckConstraint(
                condition=Q(fingerprint__length=40), name="pin_fingerprint_full"
            ),
        ]

    def __str__(self) -> str:
        return self.fingerprint


class CandidateKey(models.Model):
    """A key seen in mail or a file, waiting for a person to pin it. No verdict consults it."""

    fingerprint = models.CharField(max_length=40, unique=True)
    public_key = models.BinaryField()
    uid = models.CharField(max_length=500, blank=True)
    seen_from = models.CharField(max_length=254, blank=True)
    source = models.CharField(max_length=200)
    first_seen_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-first_seen_at"]

    def __str__(self) -> str:
        return self.fingerprint


class Permission(models.Model):
    """What one contact may ask of one identity. No row means `---`; nothing is inherited (DES-012).

    A pattern contact may hold read only: refused by the service and, whatever writes, by triggers.
    """

    identity = models.ForeignKey(Identity, on_delete=models.CASCADE, related_name="permissions")
    contact = models.ForeignKey(Contact, on_delete=models.CASCADE, related_name="permissions")
    read = models.BooleanField(default=False)
    write = models.BooleanField(default=False)
    execute = models.BooleanField(default=False)
    granted_by = models.CharField(max_length=200, blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["identity__handle", "contact__address"]
        constraints = [
            models.UniqueConstraint(fields=["identity", "contact"], name="permission_once"),
        ]

    def __str__(self) -> str:
        return f"{self.identity.handle} ← {self.contact.address} {self.rwx}"

    @property
    def rwx(self) -> Rwx:
        """The three flags as one value."""
        return Rwx(self.read, self.write, self.execute)


class ApiToken(models.Model):
    """A bearer token: shown once, kept as a SHA-256 with its visible prefix.

    `holder` is the opaque reference of the one row that it belongs to and counts for, such as a
    mission; empty for the operator's own. `scopes` is a list of scope names; `project` a slug or
    empty.
    """

    prefix = models.CharField(max_length=16, unique=True)
    digest = models.CharField(max_length=64, unique=True)
    label = models.CharField(max_length=200)
    identity = models.ForeignKey(
        Identity, on_delete=models.CASCADE, null=True, blank=True, related_name="tokens"
    )
    holder_type = models.CharField(max_length=64, blank=True)
    holder_id = models.CharField(max_length=64, blank=True)
    scopes = models.JSONField(default=list)
    project = models.CharField(max_length=64, blank=True)
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]
        verbose_name = "API token"

    def __str__(self) -> str:
        return f"{self.label} ({self.prefix}…)"


class Decision(models.Model):
    """One answer to one question, append-only by trigger: who asked what, and which rule decided.

    `identity` and `contact` say under whose permission; PROTECT, since history must not vanish.
    """

    at = models.DateTimeField(default=timezone.now, db_index=True)
    asker = models.CharField(max_length=200)
    action = models.CharField(max_length=16, choices=[(a.value, a.value) for a in Action])
    subject_type = models.CharField(max_length=64)
    subject_id = models.CharField(max_length=64)
    identity = models.ForeignKey(
        Identity,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="decisions",
    )
    sender = models.CharField(max_length=254, blank=True)
    permission = models.CharField(max_length=3, default="---")
    verdict = models.CharField(max_length=8, choices=[(v.value, v.value) for v in Verdict])
    rule = models.CharField(max_length=32, choices=[(r.value, r.value) for r in Rule])
    evidence = models.JSONField(default=dict)

    class Meta:
        ordering = ["-id"]
        indexes = [
            # The decisions about one message, pipeline or reply, newest first.
            models.Index(fields=["subject_type", "subject_id", "-id"], name="decision_subject"),
            # The console's counts per day by rule.
            models.Index(fields=["rule", "at"], name="decision_rule_at"),
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.verdict}: {self.rule}"


class ReplayEntry(models.Model):
    """One signed text has started one pipeline, ever (append-only by trigger).

    `key` is SHA-256 over (primary fingerprint, signature time, SHA-256 of the normalised signed
    bytes), or over (Message-ID, decoded text) for `trusted` mail.
    """

    key = models.CharField(max_length=64, unique=True)
    subject_type = models.CharField(max_length=64)
    subject_id = models.CharField(max_length=64)
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name_plural = "replay ledger"

    def __str__(self) -> str:
        return self.key[:12]


class Setting(models.Model):
    """One installation-wide value that commands change, such as `execute_not_before`."""

    name = models.CharField(max_length=64, primary_key=True)
    value: models.JSONField[Any, Any] = models.JSONField()
    updated_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return self.name


class Heartbeat(models.Model):
    """A long-lived process of this installation says that it is alive.

    `holder` is `guards.process.this_process()`'s reference; `role` is `worker`, `watcher` or `web`.
    """

    holder = models.CharField(max_length=200, primary_key=True)
    role = models.CharField(max_length=16)
    started_at = models.DateTimeField(default=timezone.now)
    seen_at = models.DateTimeField(default=timezone.now)

    class Meta:
        indexes = [
            # readyz asks for the newest heartbeat of a role.
            models.Index(fields=["role", "-seen_at"], name="heartbeat_role"),
        ]

    def __str__(self) -> str:
        return f"{self.role} {self.holder}"


class IdempotentCall(models.Model):
    """One acting call by an `Idempotency-Key`: what was asked, and the first answer.

    Keys are a token's own. `request` is SHA-256 over the operation and its arguments; the answer is
    kept once it is known, so that the same call again gets the same one.
    """

    token = models.ForeignKey(ApiToken, on_delete=models.CASCADE, related_name="calls")
    key = models.CharField(max_length=200)
    operation = models.CharField(max_length=64)
    request = models.CharField(max_length=64)
    answer = models.JSONField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(fields=["token", "key"], name="call_one_per_token_and_key"),
        ]
        indexes = [
            # The sweep of calls that nobody repeats any more.
            models.Index(fields=["created_at"], name="call_created"),
        ]

    def __str__(self) -> str:
        return f"{self.operation} by {self.key[:20]}"

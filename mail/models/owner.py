"""What the owner was told by mail, and what he answered."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q
from django.utils import timezone

from mail.models.leaving import Outbound
from mail.models.messages import Message
from mail.types import AnswerReason, OrderFault, Verb


class MailedAnswer(models.Model):
    """One message that speaks of an order, and what it did. It never starts work.

    Written `due` with the message; settled once. `strength` says whether we saw the owner's
    signature ourselves (`witnessed`) or only a mail that says it is from him (`reported`), `signer`
    with which key. `digest` names what it is about, as far as that could be read.
    """

    class State(models.TextChoices):
        DUE = "due"
        DONE = "done"
        REFUSED = "refused"

    class Strength(models.TextChoices):
        WITNESSED = "witnessed"
        REPORTED = "reported"

    message = models.OneToOneField(Message, on_delete=models.PROTECT, related_name="mailed_answer")
    first_pass = models.BooleanField(default=False)
    state = models.CharField(max_length=8, choices=State.choices, default=State.DUE)
    strength = models.CharField(max_length=9, choices=Strength.choices, blank=True)
    verb = models.CharField(max_length=8, choices=[(v.value, v.value) for v in Verb], blank=True)
    digest = models.CharField(max_length=64, blank=True)
    signer = models.CharField(max_length=40, blank=True)
    signed_at = models.DateTimeField(null=True, blank=True)
    approval = models.ForeignKey(
        "approvals.Approval", on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    reason = models.CharField(
        max_length=32,
        choices=[(r.value, r.value) for r in (*AnswerReason, *OrderFault)],
        blank=True,
    )
    detail = models.TextField(blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    settled_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(state="due", settled_at=None, reason="")
                | (~Q(state="due") & Q(settled_at__isnull=False) & ~Q(reason="")),
                name="mailed_answer_settled_has_reason",
            ),
        ]
        indexes = [
            # The sweep of what nobody has judged yet.
            models.Index(fields=["id"], condition=Q(state="due"), name="mailed_answer_due"),
            # What was answered about one snapshot.
            models.Index(fields=["digest"], name="mailed_answer_digest"),
        ]

    def __str__(self) -> str:
        return f"{self.verb or 'answer'} {self.digest[:8]}".strip()


class OwnerNotice(models.Model):
    """One mail to the owner: what waits for him, or why an answer of his was refused.

    `encrypted_to` is the primary fingerprint of the only key that reads it; empty: then it shows
    nothing that is private. Its text is never stored here: it is made from the approvals' encrypted
    previews when the mail is frozen. `waiting` is how many drafts waited in all.
    """

    class Kind(models.TextChoices):
        HOLDS = "holds"
        REFUSAL = "refusal"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=8, choices=Kind.choices, default=Kind.HOLDS)
    to = models.CharField(max_length=254)
    encrypted_to = models.CharField(max_length=40, blank=True)
    waiting = models.PositiveIntegerField(default=0)
    outbound = models.OneToOneField(Outbound, on_delete=models.PROTECT, related_name="owner_notice")
    answer = models.OneToOneField(
        MailedAnswer, on_delete=models.PROTECT, null=True, blank=True, related_name="notice"
    )
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(
                condition=Q(kind="holds", answer=None) | Q(kind="refusal", answer__isnull=False),
                name="owner_notice_refusal_has_answer",
            ),
        ]

    def __str__(self) -> str:
        return f"notice {str(self.pk)[:8]}"


class NoticeItem(models.Model):
    """One draft in a notice. `approval` is the snapshot that was shown in full; it may be answered.

    Without one the draft was only named: its kind is answered in the console alone, or the notice
    shows nothing private. `why` is the stable word for that.
    """

    notice = models.ForeignKey(OwnerNotice, on_delete=models.PROTECT, related_name="items")
    position = models.PositiveSmallIntegerField()
    hold = models.ForeignKey("approvals.Hold", on_delete=models.PROTECT, related_name="+")
    approval = models.OneToOneField(
        "approvals.Approval", on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    why = models.CharField(max_length=32, blank=True)

    class Meta:
        ordering = ["notice", "position"]
        constraints = [
            models.UniqueConstraint(fields=["notice", "hold"], name="notice_names_hold_once"),
        ]

    def __str__(self) -> str:
        return f"{self.position} of {self.notice}"

"""The sign-off desk in the console: held drafts, approvals, effects, observations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from unfold.decorators import display

from approvals import selectors
from approvals.middleware import root_of
from approvals.models import Approval, Effect, Hold, Observation
from approvals.registry import is_permission, kinds
from approvals.sentences import phase_sentence, reason_sentence
from approvals.services import approvals as approval_services
from approvals.services import effects as effect_services
from approvals.services import holds as hold_services
from approvals.services import permissions as permission_services
from guards.exceptions import InvalidInput
from guards.fronts.console import Act, PageAdmin, operator

HOLD_LABELS = {
    "waiting": "warning",
    "sent": "success",
    "allowed": "success",
    "rejected": "danger",
    "changes requested": "warning",
    "withdrawn": "default",
}
APPROVAL_LABELS = {
    "pending": "warning",
    "approved": "info",
    "consumed": "success",
    "rejected": "danger",
    "changes requested": "warning",
}
PHASE_LABELS = {
    "intent": "info",
    "marked": "info",
    "accepted": "success",
    "verified": "success",
    "failed": "danger",
    "unknown": "danger",
}


def _kind_label(name: str) -> str:
    kind = kinds().get(name)
    return kind.label if kind else name


def _reason(request: HttpRequest) -> str:
    reason = request.POST.get("reason", "").strip()
    if not reason:
        raise InvalidInput("say why: the reason goes back to whoever asked", field="reason")
    return reason


@admin.register(Hold)
class HoldAdmin(PageAdmin):
    """Drafts that wait for a person, as long as they must."""

    page_template = "approvals/hold.html"
    empty_state = "Drafts of identities whose replies need your approval will wait here."
    empty_icon = "front_hand"
    list_display = ("show_subject", "show_state", "reason", "requested_by", "since")
    list_filter = ("state", "kind", "project")
    search_fields = ("subject_id", "requested_by", "reason")
    date_hierarchy = "since"
    ordering = ("-since",)

    @display(description="What", ordering="kind")
    def show_subject(self, hold: Hold) -> str:
        """The kind of act and its subject."""
        return f"{_kind_label(hold.kind)} · {hold.subject_id[:8]}"

    @display(description="State", label=HOLD_LABELS, ordering="state")
    def show_state(self, hold: Hold) -> str:
        """The state's word."""
        return hold.get_state_display()

    def acts(self) -> Mapping[str, Act]:
        """Open for review starts the clock; withdraw gives the draft up."""
        return {"open": self.open_for_review, "withdraw": self.withdraw}

    def open_for_review(self, request: HttpRequest, object_id: str) -> str | None:
        """Take a fresh snapshot and make the approval."""
        approval = hold_services.open_for_review(
            hold_id=object_id, by=operator(request), root=root_of(request)
        )
        request.opened_approval = approval  # type: ignore[attr-defined]
        return None

    def withdraw(self, request: HttpRequest, object_id: str) -> str:
        """Give the draft up."""
        hold_services.withdraw(hold_id=object_id, by=operator(request), reason=_reason(request))
        return "The draft was withdrawn. Nothing was sent."

    def act_target(self, request: HttpRequest, object_id: str, act: str) -> str:
        """A review that was opened is where the person wants to be."""
        approval = getattr(request, "opened_approval", None)
        if approval is None:
            return super().act_target(request, object_id, act)
        return reverse("admin:approvals_approval_change", args=[approval.pk])

    def page(self, request: HttpRequest, row: Hold) -> Mapping[str, object]:
        """Its approvals so far, and the open one."""
        approvals = list(row.approvals.select_related("effect").order_by("-created_at"))
        pending = (one for one in approvals if one.state == Approval.State.PENDING)
        return {
            "title": f"Held: {_kind_label(row.kind)}",
            "approvals": approvals,
            "open_approval": next(pending, None),
            "waiting": row.state == Hold.State.WAITING,
        }


@admin.register(Approval)
class ApprovalAdmin(PageAdmin):
    """What exactly may happen, side by side with what it answers."""

    page_template = "approvals/approval.html"
    empty_state = "Open a held draft for review, and its approval stands here."
    empty_icon = "approval_delegation"
    list_display = ("show_kind", "show_state", "requested_by", "decided_by", "via", "created_at")
    list_filter = ("state", "kind", "decided_via", "project")
    search_fields = ("digest", "subject_id", "requested_by", "decided_by")
    date_hierarchy = "created_at"

    @display(description="What", ordering="kind")
    def show_kind(self, approval: Approval) -> str:
        """The kind of act and the start of its digest."""
        return f"{_kind_label(approval.kind)} · {approval.digest[:8]}"

    @display(description="State", label=APPROVAL_LABELS, ordering="state")
    def show_state(self, approval: Approval) -> str:
        """The state's word."""
        return approval.get_state_display()

    @display(description="Via", ordering="decided_via")
    def via(self, approval: Approval) -> str:
        """How it was answered."""
        return approval.get_decided_via_display() or "—"

    def acts(self) -> Mapping[str, Act]:
        """The three answers, and a fresh snapshot when this one is over."""
        return {
            "approve": self.approve,
            "reject": self.reject,
            "request-changes": self.request_changes,
        }

    def approve(self, request: HttpRequest, object_id: str) -> str:
        """Approve exactly the digest that the page showed."""
        by, digest = operator(request), request.POST.get("digest", "")
        via = Approval.Via.CONSOLE
        if is_permission(approval_services.found(object_id).kind):
            permission_services.permit(approval_id=object_id, by=by, via=via, digest=digest)
            return "Allowed, for exactly one use of it."
        approval_services.approve(
            approval_id=object_id, by=by, via=via, digest=digest, root=root_of(request)
        )
        return "Approved. It leaves now, exactly once."

    def reject(self, request: HttpRequest, object_id: str) -> str:
        """Refuse it for good."""
        approval_services.reject(
            approval_id=object_id,
            by=operator(request),
            via=Approval.Via.CONSOLE,
            reason=_reason(request),
        )
        return "Rejected. Nothing was sent."

    def request_changes(self, request: HttpRequest, object_id: str) -> str:
        """Send it back with what should be different."""
        approval_services.request_changes(
            approval_id=object_id,
            by=operator(request),
            via=Approval.Via.CONSOLE,
            reason=_reason(request),
        )
        return "Sent back with your reason. Nothing was sent out."

    def get_queryset(self, request: HttpRequest) -> QuerySet[Approval]:
        """With the hold: the page and the list name it."""
        rows: QuerySet[Approval] = super().get_queryset(request).select_related("hold")
        return rows

    def page(self, request: HttpRequest, row: Approval) -> Mapping[str, object]:
        """The preview that a person decides on, whether it still holds, and what became of it."""
        preview = dict(selectors.preview(row))
        pending = row.state == Approval.State.PENDING
        expired = pending and row.expires_at <= timezone.now()
        drifted = row.drifted or (selectors.drift(row) if pending and not expired else None)
        effect = Effect.objects.filter(approval=row).first()
        return {
            "title": f"Review: {_kind_label(row.kind)}",
            "permission": is_permission(row.kind),
            "moving": effect is not None and effect.phase in Effect.OUTSTANDING,
            "source": preview.pop("source", None),
            "fields": _fields(preview),
            "body": preview.get("text", ""),
            "attachments": preview.get("attachments", []),
            "pending": pending,
            "expired": expired,
            "drifted": drifted.replace("_", " ") if drifted else "",
            "can_decide": pending and not expired and not drifted and self.may_act(request),
            "effect": effect,
            "opened_ago": timezone.now() - row.created_at,
        }


#: The fields of a preview in the order in which a careful person reads them.
_FIELD_ORDER = (
    ("from", "From"),
    ("to", "To"),
    ("cc", "Cc"),
    ("bcc", "Bcc"),
    ("reply_to", "Reply-To of the source, not used"),
    ("subject", "Subject"),
    ("date", "Date"),
    ("message_id", "Message-ID"),
    ("thread", "Thread"),
    ("in_reply_to", "In-Reply-To"),
    ("references", "References"),
    ("account", "Account"),
    ("signed", "Signed"),
    ("automatic", "Marked as automatic"),
    ("size", "Bytes"),
    ("mime_sha256", "SHA-256 of it all"),
)
_ELSEWHERE = frozenset({"text", "attachments", "source"})


def _fields(preview: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Every field of a preview with its values: known ones first, then what else there is."""
    known = [(label, preview[key]) for key, label in _FIELD_ORDER if key in preview]
    names = {key for key, _ in _FIELD_ORDER} | _ELSEWHERE
    rest = [
        (key.replace("_", " ").capitalize(), preview[key]) for key in preview if key not in names
    ]
    return [(label, _readable(value)) for label, value in known + rest]


def _readable(value: object) -> list[str]:
    if isinstance(value, bool):
        return ["yes" if value else "no"]
    if isinstance(value, list | tuple):
        return [str(item) for item in value]
    return [str(value)] if value not in (None, "") else []


@admin.register(Effect)
class EffectAdmin(PageAdmin):
    """Each act that left the house, or did not, or may have."""

    page_template = "approvals/effect.html"
    empty_state = "Whatever leaves the house is one effect. None has left yet."
    empty_icon = "rocket_launch"
    list_display = ("show_kind", "show_phase", "reason", "contact_marked_at", "settled_at")
    list_filter = ("phase", "kind", "project")
    search_fields = ("digest", "subject_id", "source_id", "reason")
    date_hierarchy = "created_at"

    @display(description="What", ordering="kind")
    def show_kind(self, effect: Effect) -> str:
        """The kind of act and the start of its digest."""
        return f"{_kind_label(effect.kind)} · {effect.digest[:8]}"

    @display(description="Phase", label=PHASE_LABELS, ordering="phase")
    def show_phase(self, effect: Effect) -> str:
        """The phase's word."""
        return effect.phase

    def acts(self) -> Mapping[str, Act]:
        """An unknown outcome is acknowledged by a person, so that the next act may go."""
        return {"acknowledge": self.acknowledge}

    def acknowledge(self, request: HttpRequest, object_id: str) -> str:
        """Take note of an unknown outcome."""
        effect_services.acknowledge_unknown(effect_id=object_id, by=operator(request))
        return "Acknowledged. It stays unknown; another act about the same message may go now."

    def get_queryset(self, request: HttpRequest) -> QuerySet[Effect]:
        """With the approval that allowed it."""
        rows: QuerySet[Effect] = super().get_queryset(request).select_related("approval")
        return rows

    def page(self, request: HttpRequest, row: Effect) -> Mapping[str, object]:
        """What was to leave, how far it came, and what later looks found."""
        preview = dict(selectors.preview(row.approval))
        preview.pop("source", None)
        unknown = row.phase == Effect.Phase.UNKNOWN
        return {
            "title": f"Effect: {_kind_label(row.kind)}",
            "moving": row.phase in Effect.OUTSTANDING,
            "fields": _fields(preview),
            "body": preview.get("text", ""),
            "sentence": phase_sentence(row.phase),
            "reason_sentence": reason_sentence(row.reason),
            "steps": _steps(row),
            "unknown": unknown,
            "can_acknowledge": unknown and row.acknowledged_at is None and self.may_act(request),
            "observations": list(row.observations.all()),
        }


def _steps(effect: Effect) -> list[tuple[str, object, str]]:
    """How far the effect came: word, time, tone."""
    done = effect.phase in Effect.DONE
    settled = effect.settled_at is not None
    tone = "ok" if done else "bad" if settled else "quiet"
    approved = effect.approval.decided_at or effect.created_at
    marked = "info" if effect.contact_marked_at else "quiet"
    return [
        ("approved", approved, "ok"),
        ("intent frozen", effect.created_at, "ok"),
        ("marked before the contact", effect.contact_marked_at, marked),
        (effect.phase if settled else "outcome", effect.settled_at, tone),
    ]


@admin.register(Observation)
class ObservationAdmin(PageAdmin):
    """Later looks at an effect. They change nothing."""

    page_template = "approvals/observation.html"
    empty_state = "Nobody has looked again at an effect."
    empty_icon = "visibility"
    list_display = ("effect", "outcome", "observer", "at")
    list_filter = ("outcome",)
    search_fields = ("observer", "outcome")
    date_hierarchy = "at"
    list_select_related = ("effect",)

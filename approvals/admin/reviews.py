"""Approvals in the console: exactly what may happen, beside what it answers, and the answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.views.decorators.http import require_safe
from unfold.decorators import display

from approvals import selectors
from approvals.admin.fields import fields_of, kind_label, reason_given, source_of
from approvals.middleware import root_of
from approvals.models import Approval, Effect
from approvals.refusals import changed, in_words
from approvals.registry import is_permission
from approvals.sentences import phase_sentence
from approvals.services import approvals as approval_services
from approvals.services import permissions as permission_services
from approvals.types import Purpose
from guards.exceptions import CountersignError
from guards.fronts.console import Act, PageAdmin, operator

APPROVAL_LABELS = {
    "pending": "warning",
    "approved": "info",
    "consumed": "success",
    "rejected": "danger",
    "changes requested": "warning",
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
        return f"{kind_label(approval.kind)} · {approval.digest[:8]}"

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
        with in_words():
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
            reason=reason_given(request),
        )
        return "Rejected. Nothing was sent."

    def request_changes(self, request: HttpRequest, object_id: str) -> str:
        """Send it back with what should be different."""
        approval_services.request_changes(
            approval_id=object_id,
            by=operator(request),
            via=Approval.Via.CONSOLE,
            reason=reason_given(request),
        )
        return "Sent back with your reason. Nothing was sent out."

    def get_queryset(self, request: HttpRequest) -> QuerySet[Approval]:
        """With the hold: the page and the list name it."""
        rows: QuerySet[Approval] = super().get_queryset(request).select_related("hold")
        return rows

    def pages(self) -> list[URLPattern]:
        """What an open page asks now and then: whether it may still be answered."""
        standing = self.admin_site.admin_view(require_safe(self.standing))
        address = "<path:object_id>/standing/"
        return [path(address, standing, name=self._short("standing"))]

    def standing(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Whether an open review still holds, as JSON. It changes nothing and asks nobody.

        `drifted` names what changed, `says` why it cannot be answered any more; both are empty
        while it can.
        """
        row = self.page_row(request, object_id)
        if row is None:
            return JsonResponse({"state": "gone", "drifted": "", "says": "It is gone."}, status=404)
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        now = Standing.of(request, row)
        return JsonResponse({"state": row.state, "drifted": now.drifted, "says": now.says})

    def page(self, request: HttpRequest, row: Approval) -> Mapping[str, object]:
        """The preview that a person decides on, whether it still holds, and what became of it."""
        now = Standing.of(request, row)
        preview = {} if now.unreadable else dict(selectors.preview(row))
        effect = Effect.objects.filter(approval=row).select_related("consent").first()
        source = source_of(preview)
        return {
            "title": f"Review: {kind_label(row.kind)}",
            "permission": is_permission(row.kind),
            "moving": effect is not None and effect.phase in Effect.OUTSTANDING,
            "source": source,
            "observed_at": _observed_at(row, source),
            "preview_contacts": selectors.contact_counts(selectors.preview_grant(row)),
            "contacts_of_a_yes": selectors.planned_contacts(row.kind, Purpose.EXECUTE),
            "fields": fields_of(preview),
            "body": preview.get("text", ""),
            "attachments": preview.get("attachments", []),
            "standing": now,
            "can_decide": self.may_act(request) and now.is_open,
            "effect": effect,
            "effect_says": phase_sentence(effect.phase) if effect else "",
        }


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether a review may be answered on this page, now, and if not, why not.

    `drifted` is the name of what changed; `elsewhere` says where it is answered instead;
    `unreadable` why nobody can read it. A look: approving decides.
    """

    pending: bool
    expired: bool
    drifted: str
    elsewhere: str
    unreadable: str

    @classmethod
    def of(cls, request: HttpRequest, row: Approval) -> Standing:
        """As it is at this moment."""
        pending = row.state == Approval.State.PENDING
        expired = pending and row.expires_at <= timezone.now()
        drifted, unreadable = row.drifted, ""
        try:
            selectors.preview(row)
            if pending and not expired:
                drifted = drifted or selectors.drift(row) or ""
        except CountersignError as refused:
            unreadable = refused.detail
        elsewhere = _answered_elsewhere(request, row) if pending else ""
        return cls(pending, expired, drifted, elsewhere, unreadable)

    @property
    def is_open(self) -> bool:
        """Whether it waits for an answer, and this page may give it."""
        return self.pending and not self.says

    @property
    def says(self) -> str:
        """Why it cannot be answered any more, in a sentence; empty while it can."""
        if self.drifted:
            return changed(self.drifted)
        if self.unreadable:
            return self.unreadable
        if self.expired:
            return "The time for this review is over."
        return self.elsewhere or ("" if self.pending else "It was answered meanwhile.")


def _answered_elsewhere(request: HttpRequest, row: Approval) -> str:
    """Why this page cannot answer it although it waits; empty where it can."""
    if row.answer_via and row.answer_via != Approval.Via.CONSOLE:
        return (
            "This snapshot was sent to the owner and waits for a signed answer by mail. Open the "
            "held draft for review to answer it here; the one in the mail is void then."
        )
    root = root_of(request)
    bound = bool(selectors.planned_contacts(row.kind, Purpose.EXECUTE))
    if bound and (root is None or root.pk != row.root_id):
        return (
            "It was opened in another session, and only that one can answer it. Open the held "
            "draft for review in this one."
        )
    return ""


def _observed_at(row: Approval, source: object) -> datetime:
    """When the source was read: by the kind's own word, else when the snapshot was taken."""
    told = source.get("observed_at") if isinstance(source, Mapping) else None
    if isinstance(told, str) and isinstance(source, Mapping) and "gmail" in source:
        return datetime.fromisoformat(told)
    return row.created_at

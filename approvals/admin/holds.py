"""Drafts that wait for a person, in the console."""

from __future__ import annotations

from collections.abc import Mapping

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from unfold.decorators import display

from approvals.admin.fields import kind_label, reason_given
from approvals.middleware import root_of
from approvals.models import Approval, Hold
from approvals.refusals import in_words
from approvals.services import holds as hold_services
from guards.fronts.console import Act, PageAdmin, operator

HOLD_LABELS = {
    "waiting": "warning",
    "sent": "success",
    "allowed": "success",
    "rejected": "danger",
    "changes requested": "warning",
    "withdrawn": "default",
}


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
        return f"{kind_label(hold.kind)} · {hold.subject_id[:8]}"

    @display(description="State", label=HOLD_LABELS, ordering="state")
    def show_state(self, hold: Hold) -> str:
        """The state's word."""
        return hold.get_state_display()

    def acts(self) -> Mapping[str, Act]:
        """Open for review starts the clock; withdraw gives the draft up."""
        return {"open": self.open_for_review, "withdraw": self.withdraw}

    def open_for_review(self, request: HttpRequest, object_id: str) -> str | None:
        """Take a fresh snapshot and make the approval."""
        with in_words():
            approval = hold_services.open_for_review(
                hold_id=object_id, by=operator(request), root=root_of(request)
            )
        request.opened_approval = approval  # type: ignore[attr-defined]
        return None

    def withdraw(self, request: HttpRequest, object_id: str) -> str:
        """Give the draft up."""
        hold_services.withdraw(
            hold_id=object_id, by=operator(request), reason=reason_given(request)
        )
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
            "title": f"Held: {kind_label(row.kind)}",
            "approvals": approvals,
            "open_approval": next(pending, None),
            "waiting": row.state == Hold.State.WAITING,
        }

"""Records of guards in the console: decisions, the replay ledger, heartbeats. Read-only."""

from __future__ import annotations

from datetime import timedelta

from django.contrib import admin
from django.utils import timezone
from unfold.decorators import display

from guards.fronts.console import ConsoleAdmin
from guards.models import Decision, Heartbeat, ReplayEntry

#: A process that was silent this long is shown as silent.
SILENT_AFTER = timedelta(minutes=2)


@admin.register(Decision)
class DecisionAdmin(ConsoleAdmin):
    """Every answer to every question: who asked, and which rule decided."""

    empty_state = "Each message, send and read will leave its decision here."
    empty_icon = "gavel"
    list_display = (
        "at",
        "action",
        "show_verdict",
        "rule",
        "sender",
        "permission",
        "identity",
        "asker",
    )
    list_filter = ("verdict", "rule", "action", "identity")
    list_select_related = ("identity",)
    search_fields = ("sender", "asker", "subject_type", "subject_id")
    date_hierarchy = "at"
    fieldsets = (
        (None, {"fields": ("at", "asker", "action", "verdict", "rule")}),
        ("About", {"fields": ("subject_type", "subject_id", "identity", "sender", "permission")}),
        ("Why", {"fields": ("evidence",)}),
    )

    @display(
        description="Verdict",
        ordering="verdict",
        label={"allow": "success", "hold": "warning", "deny": "danger"},
    )
    def show_verdict(self, decision: Decision) -> str:
        """The verdict's word."""
        return decision.verdict


@admin.register(ReplayEntry)
class ReplayEntryAdmin(ConsoleAdmin):
    """Signed texts that have started their one pipeline."""

    empty_state = "Each signed text that starts a pipeline leaves its key here, for ever."
    empty_icon = "history"
    list_display = ("key", "subject_type", "subject_id", "at")
    list_filter = ("subject_type",)
    search_fields = ("key", "subject_id")
    date_hierarchy = "at"
    fields = ("key", "subject_type", "subject_id", "at")


@admin.register(Heartbeat)
class HeartbeatAdmin(ConsoleAdmin):
    """The processes of this installation, and when each was last heard."""

    empty_state = "No process has been heard yet: start `manage.py up`, or worker and watcher."
    empty_icon = "monitor_heart"
    list_display = ("role", "holder", "show_state", "started_at", "seen_at")
    list_filter = ("role",)
    search_fields = ("holder",)
    fields = ("role", "holder", "started_at", "seen_at")

    @display(description="State", label={"alive": "success", "silent": "danger"})
    def show_state(self, heartbeat: Heartbeat) -> str:
        """Whether it was heard lately."""
        silent = timezone.now() - heartbeat.seen_at > SILENT_AFTER
        return "silent" if silent else "alive"

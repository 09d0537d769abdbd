"""Missions: what each worker was asked, what it handed in, what it cost; and the two ways out."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import URLPattern, path
from django.utils import timezone
from unfold.decorators import display

from guards.fronts.console import Act, PageAdmin, operator
from pipelines import covering, selectors
from pipelines.admin.costs import costs_page
from pipelines.models import Mission
from pipelines.services import missions

STATUS_LABELS = {
    "open": "info",
    "closed": "success",
    "failed": "danger",
    "escalated": "warning",
}


@admin.register(Mission)
class MissionAdmin(PageAdmin):
    """Each bounded piece of work that a `claude` worker was given."""

    page_template = "pipelines/mission.html"
    empty_state = "A stage of a command with the claude runner opens one."
    empty_icon = "assignment"
    list_display = (
        "show_name",
        "show_status",
        "pipeline",
        "show_round",
        "show_cost",
        "opened_at",
        "closed_at",
    )
    list_filter = ("status", "command")
    search_fields = ("id", "command", "pipeline__id", "pipeline__requester")
    date_hierarchy = "opened_at"
    list_select_related = ("pipeline",)

    @display(description="Mission", ordering="command")
    def show_name(self, mission: Mission) -> str:
        """The start of its id and its command."""
        return f"{str(mission.pk)[:8]} · {mission.command}"

    @display(description="Status", ordering="status", label=STATUS_LABELS)
    def show_status(self, mission: Mission) -> str:
        """The status's word."""
        return mission.get_status_display().lower()

    @display(description="Round", ordering="round")
    def show_round(self, mission: Mission) -> str:
        """Which of how many."""
        return f"{mission.round} of {mission.rounds}"

    @display(description="Cost", ordering="usd")
    def show_cost(self, mission: Mission) -> str:
        """What it has cost, of what it may cost."""
        return f"{mission.usd:.2f} of {mission.max_usd:.2f} USD"

    def acts(self) -> Mapping[str, Act]:
        """The two ways out for an operator; closing is none of them."""
        return {"release": self.release, "abandon": self.abandon}

    def pages(self) -> list[URLPattern]:
        """What missions cost."""
        view = self.admin_site.admin_view(costs_page)
        return [path("costs/", view, name="pipelines_mission_costs")]

    def release(self, request: HttpRequest, object_id: str) -> str:
        """Free a stuck write set; the mission fails with it."""
        reason = request.POST.get("reason", "")
        missions.release(mission_id=UUID(object_id), reason=reason, by=operator(request))
        return "Released: the mission has failed, and others may change these files."

    def abandon(self, request: HttpRequest, object_id: str) -> str:
        """Give up a mission whose worker was never started."""
        reason = request.POST.get("reason", "")
        missions.abandon(mission_id=UUID(object_id), reason=reason, by=operator(request))
        return "Abandoned: no worker will start."

    def page(self, request: HttpRequest, row: Mission) -> Mapping[str, object]:
        """The contract beside what was handed in, round by round."""
        is_open = row.status == Mission.Status.OPEN
        is_covered = selectors.is_covered(row.pipeline_id, for_person=True)
        shown = covering.mission(row) if is_covered else row
        calls = list(row.tool_calls.order_by("asked_at"))
        return {
            "row": shown,
            "title": f"Mission {str(row.pk)[:8]}",
            "given": shown.contract["inputs"]["pipeline_output"],
            "rounds": _rounds(row, is_covered=is_covered),
            "tool_calls": list(map(covering.tool_call, calls)) if is_covered else calls,
            "stuck": is_open and selectors.stuck_missions().filter(pk=row.pk).exists(),
            "took": ((row.closed_at or timezone.now()) - row.opened_at).total_seconds(),
            "is_open": is_open,
            "can_abandon": is_open and row.dispatched_at is None and self.may_act(request),
            "can_release": is_open and self.may_act(request),
        }

    def get_queryset(self, request: HttpRequest) -> QuerySet[Mission]:
        """With its stage."""
        rows: QuerySet[Mission] = super().get_queryset(request)
        return rows.select_related("pipeline", "stage")


def _rounds(mission: Mission, *, is_covered: bool) -> list[dict[str, object]]:
    """Each round that has run or runs, with its result and its look back, where there is one."""
    results = {row.round: row for row in mission.results.all()}
    looks = {row.round: row for row in mission.reflections.all()}
    if is_covered:
        results = {number: covering.result(row) for number, row in results.items()}
        looks = {number: covering.reflection(row) for number, row in looks.items()}
    return [
        {"number": number, "result": results.get(number), "reflection": looks.get(number)}
        for number in range(1, mission.round + 1)
    ]

"""What missions and their workers need of a person: answers, a way out, money, a sandbox."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, timedelta
from typing import Any
from urllib.parse import quote

from django.db.models import Exists, Max, OuterRef, QuerySet, Subquery
from django.db.models.expressions import Combinable
from django.db.models.functions import Now, TruncDay
from django.urls import reverse

from approvals.models import Approval, Hold
from config.need import ROWS_PER_SOURCE, Need, Source
from pipelines import selectors
from pipelines.models import Mission, Stage, ToolCall

#: A worker that was refused this long ago, and never since, asks for nobody any more.
REFUSAL_ASKS_FOR = timedelta(days=7)


def tool_calls() -> QuerySet[ToolCall]:
    """What a worker asks whether it may."""
    waiting = ToolCall.objects.filter(state=ToolCall.State.WAITING, hold__state=Hold.State.WAITING)
    return waiting.order_by("asked_at")


def stuck_missions() -> QuerySet[Mission]:
    """Missions that hold others up; one that waits for an answer asks by its question."""
    return selectors.stuck_missions().exclude(tool_calls__state=ToolCall.State.WAITING)


def refused_workers(rule: str, since: Combinable) -> QuerySet[Stage, Any]:
    """Commands whose worker was refused by that rule, with when that was last and what was said.

    Not those whose worker has opened a mission since.
    """
    opened = Mission.objects.filter(
        command=OuterRef("command"), opened_at__gt=OuterRef("finished_at")
    )
    refused = Stage.objects.filter(
        ~Exists(opened),
        status=Stage.Status.FAILED,
        runner="claude",
        finished_at__gte=since,
        error__startswith=f"{rule}: ",
    )
    told = refused.order_by().values("command")
    return told.annotate(at=Max("finished_at"), said=Max("error")).order_by("at")


def reached_budgets() -> QuerySet[Stage, Any]:
    """Commands that a daily budget stopped today, in the budgets' days."""
    return refused_workers("daily-budget", TruncDay(Now(), tzinfo=UTC))


def missing_sandboxes() -> QuerySet[Stage, Any]:
    """Commands whose worker could not be confined lately."""
    return refused_workers("sandbox-missing", Now() - REFUSAL_ASKS_FOR)


def _tool_call_rows(query: QuerySet[ToolCall]) -> Iterator[Need]:
    open_approval = Approval.objects.filter(hold=OuterRef("hold"), state=Approval.State.PENDING)
    rows = query.select_related("mission").annotate(
        open_approval=Subquery(open_approval.values("pk")[:1])
    )
    for call in rows[:ROWS_PER_SOURCE]:
        if call.open_approval:
            url = reverse("admin:approvals_approval_change", args=[call.open_approval])
        else:
            url = reverse("admin:approvals_hold_open", args=[call.hold_id])
        yield Need(
            kind="tool-call",
            label="tool call",
            icon="build",
            tone="warn",
            since=call.asked_at,
            title=f"A worker of {call.mission.command} asks whether it may use {call.tool}",
            cause="Its mission waits, and goes on or is told no when you have answered.",
            act="Review" if call.open_approval else "Open for review",
            url=url,
            post=not call.open_approval,
        )


def _mission_rows(query: QuerySet[Mission]) -> Iterator[Need]:
    for mission in query[:ROWS_PER_SOURCE]:
        held = ", ".join(mission.write_set) or "no files"
        yield Need(
            kind="stuck-mission",
            label="mission stuck",
            icon="lock_clock",
            tone="bad",
            since=mission.opened_at,
            title=f"The mission for {mission.command} does not end",
            cause=f"Nobody works on it, or nothing has happened to it for a day. It holds {held}.",
            act="Look",
            url=reverse("admin:pipelines_mission_change", args=[mission.pk]),
        )


def _budget_rows(query: QuerySet[Stage, Any]) -> Iterator[Need]:
    for row in query[:ROWS_PER_SOURCE]:
        yield Need(
            kind="budget-reached",
            label="budget",
            icon="payments",
            tone="warn",
            since=row["at"],
            title=f"The day's budget is reached: {row['command']} was not started",
            cause=_said(row),
            act="See the costs",
            url=reverse("admin:pipelines_mission_costs"),
        )


def _sandbox_rows(query: QuerySet[Stage, Any]) -> Iterator[Need]:
    for row in query[:ROWS_PER_SOURCE]:
        yield Need(
            kind="sandbox-missing",
            label="sandbox",
            icon="fence",
            tone="bad",
            since=row["at"],
            title=f"There is no sandbox that works: {row['command']} was not started",
            cause=_said(row),
            act="Look",
            url=f"{reverse('admin:pipelines_stage_changelist')}?command={quote(row['command'])}",
        )


def _said(row: Mapping[str, Any]) -> str:
    """What the refusal says, without the name of its rule."""
    said = str(row["said"]).split(": ", 1)[-1]
    return f"{said[:1].upper()}{said[1:300]}"


SOURCES: tuple[Source, ...] = (
    ("tool-call", tool_calls, _tool_call_rows),
    ("stuck-mission", stuck_missions, _mission_rows),
    ("budget-reached", reached_budgets, _budget_rows),
    ("sandbox-missing", missing_sandboxes, _sandbox_rows),
)

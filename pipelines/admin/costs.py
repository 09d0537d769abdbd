"""What missions cost, by day, command and requester: plots, each with its numbers as a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import date
from decimal import Decimal

from django.conf import settings
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.views.decorators.http import require_safe

from guards.fronts import plots
from guards.fronts.console import may_view
from guards.fronts.plots import Part, Plot
from pipelines import costs
from pipelines.costs import Cost
from pipelines.models import Mission

#: The spans that the page offers, in days.
SPANS = (7, 30, 90)
#: How many commands have a colour of their own; the rest is one part.
COLOURED = len(plots.COLOURS)
#: How many bars a lying plot has.
BARS = 15
_OTHERS = "all others"


@require_safe
def costs_page(request: HttpRequest) -> HttpResponse:
    """The page. It answers GET and HEAD only, and asks a fixed number of grouped queries."""
    if not may_view(request, Mission):
        raise PermissionDenied
    days = _days_of(request)
    rows = costs.recent(Mission.objects.all(), days)
    commands = costs.by_command(rows)
    context = {
        **admin.site.each_context(request),
        "title": "Costs",
        "opts": Mission._meta,
        "days": days,
        "spans": SPANS,
        "total": costs.total(rows),
        "today": costs.total(costs.recent(Mission.objects.all(), 1)),
        "limits": {
            "one identity": settings.MISSION_DAILY_USD_PER_IDENTITY,
            "one command": settings.MISSION_DAILY_USD_PER_COMMAND,
        },
        "plots": _plots(days, rows, commands) if commands else [],
    }
    request.current_app = admin.site.name
    return TemplateResponse(request, "pipelines/costs.html", context)


def _days_of(request: HttpRequest) -> int:
    """The span that the address asks for, among those that are offered."""
    wanted = request.GET.get("days", "")
    return int(wanted) if wanted in map(str, SPANS) else costs.DAYS


def _plots(days: int, rows: costs.Missions, commands: Sequence[Cost]) -> list[Plot]:
    requesters = costs.by_requester(rows)
    return [
        _day_plot(days, rows, commands),
        _bars("Cost by command", "Command", commands),
        _bars("Cost by requester", "Requester", requesters),
    ]


def _day_plot(days: int, rows: costs.Missions, commands: Sequence[Cost]) -> Plot:
    named = [cost.key for cost in commands[:COLOURED]]
    parts = [Part(name, name, colour) for name, colour in zip(named, plots.COLOURS, strict=False)]
    spent: defaultdict[tuple[date, str], float] = defaultdict(float)
    for cost in costs.by_day_and_command(rows):
        spent[cost.day, cost.command if cost.command in named else _OTHERS] += float(cost.usd)
    if any(key == _OTHERS for _, key in spent):
        parts.append(Part(_OTHERS, _OTHERS, plots.REST))
    return plots.per_day(
        "Cost per day by command, USD",
        costs.days_of(days),
        parts,
        spent,
        summary=f"{days} days (UTC)",
        written=lambda usd: money(usd) if usd else "–",
        whole=False,
    )


def _bars(title: str, word: str, found: Sequence[Cost]) -> Plot:
    shown = found[:BARS]
    rows = [
        (cost.key, money(cost.usd), cost.missions, cost.turns, money(cost.usd / cost.missions))
        for cost in shown
    ]
    many = f"{len(found)} {word.lower()}{'' if len(found) == 1 else 's'}"
    more = f"the {len(shown)} dearest of {many}" if len(found) > BARS else many
    return plots.bars(
        f"{title}, USD",
        (word, "USD", "missions", "turns", "each"),
        rows,
        [float(cost.usd) for cost in shown],
        summary=more,
    )


def money(usd: Decimal | float) -> str:
    """US dollars, exact to the cent, and finer where a cent would hide them."""
    return f"{usd:.2f}" if usd >= 0.01 or not usd else f"{usd:.4f}"

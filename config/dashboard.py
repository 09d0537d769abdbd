"""The index page: what needs a person, today's numbers, plots with their tables, the newest events.

Every number is one grouped query; the page costs the same with ten messages and with a million.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any

from django.db.models import Count, QuerySet
from django.db.models.functions import TruncDate
from django.http import HttpRequest
from django.utils import timezone

from approvals.models import Approval
from config import needs
from guards.models import Decision
from guards.types import TrustLevel, Verdict
from mail.models import Message
from mail.sentences import LEVELS
from pipelines.models import Pipeline
from teams import selectors as teams_selectors

#: How many days the plots look back, today included.
DAYS = 14
#: How many events stand in the feed before the websocket adds to them.
FEED_ROWS = 25

LEVEL_COLOURS: Mapping[str, str] = {
    TrustLevel.TRUSTED: "var(--cs-trusted)",
    TrustLevel.VERIFIED: "var(--cs-verified)",
    TrustLevel.UNVERIFIED: "var(--cs-unverified)",
    TrustLevel.UNTRUSTED: "var(--cs-untrusted)",
}
VERDICT_COLOURS: Mapping[str, str] = {
    Verdict.ALLOW: "var(--cs-verified)",
    Verdict.HOLD: "var(--cs-unverified)",
    Verdict.DENY: "var(--cs-untrusted)",
}
PIPELINE_COLOURS: Mapping[str, str] = {
    Pipeline.Status.COMPLETED: "var(--cs-verified)",
    Pipeline.Status.WAITING_APPROVAL: "var(--cs-unverified)",
    Pipeline.Status.FAILED: "var(--cs-untrusted)",
    Pipeline.Status.INTERRUPTED: "var(--cs-interrupted)",
    Pipeline.Status.CANCELLED: "var(--cs-quiet)",
}


@dataclass(frozen=True, slots=True)
class Share:
    """One part of a total: its word, how many, its tone, and how many stand before it."""

    word: str
    number: int
    tone: str
    before: int


@dataclass(frozen=True, slots=True)
class Figure:
    """One card of today's numbers: a total and what it is made of."""

    title: str
    icon: str
    total: int
    parts: tuple[Share, ...]

    @property
    def width(self) -> int:
        """How wide the parts are together; never nothing."""
        return sum(part.number for part in self.parts) or 1


@dataclass(frozen=True, slots=True)
class Plot:
    """One stacked bar chart, and the same numbers as rows for people who would rather read."""

    title: str
    chart: str
    options: str
    headers: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    total: int


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Unfold's callback: everything the index template shows."""
    head = teams_selectors.head()
    context.update(
        title="Needs you",
        needs=needs.queue(),
        needs_total=sum(needs.counts(request).values()),
        figures=_figures(),
        plots=_plots(),
        events=teams_selectors.newest_events(limit=FEED_ROWS),
        head=head,
        event_kinds=sorted({name.split(".")[0] for name in _kind_names()}),
        projects=list(teams_selectors.projects()),
        sample_empty=not Message.objects.exists(),
    )
    return context


def _kind_names() -> Iterable[str]:
    from teams.registry import event_kinds

    return [kind.name for kind in event_kinds()]


def _start_of_today() -> datetime:
    today = timezone.localdate()
    return timezone.make_aware(datetime.combine(today, time.min))


def _figures() -> list[Figure]:
    since = _start_of_today()
    mail = _counted(Message.objects.filter(received_at__gte=since), "trust_level")
    decisions = _counted(Decision.objects.filter(at__gte=since), "verdict")
    work = _counted(Pipeline.objects.filter(created_at__gte=since), "status")
    approvals = _counted(Approval.objects.filter(created_at__gte=since), "state")
    return [
        _figure("Mail", "inbox", mail, {level: (LEVELS[level], level) for level in TrustLevel}),
        _figure(
            "Decisions",
            "gavel",
            decisions,
            {"allow": ("allowed", "ok"), "hold": ("held", "warn"), "deny": ("denied", "bad")},
        ),
        _figure(
            "Pipelines",
            "account_tree",
            work,
            {
                "completed": ("completed", "ok"),
                "waiting_approval": ("waiting", "warn"),
                "failed": ("failed", "bad"),
                "interrupted": ("interrupted", "bad"),
            },
        ),
        _figure(
            "Approvals",
            "approval_delegation",
            approvals,
            {
                "pending": ("pending", "warn"),
                "consumed": ("sent", "ok"),
                "rejected": ("rejected", "bad"),
                "expired": ("expired", "quiet"),
            },
        ),
    ]


def _counted(rows: QuerySet[Any], field: str) -> Counter[str]:
    counted = rows.order_by().values_list(field).annotate(number=Count("pk"))
    return Counter({str(value): number for value, number in counted})


def _figure(
    title: str, icon: str, counted: Counter[str], shown: Mapping[Any, tuple[str, str]]
) -> Figure:
    parts: list[Share] = []
    before = 0
    for key, (word, tone) in shown.items():
        number = counted[str(key)]
        parts.append(Share(word, number, tone, before))
        before += number
    return Figure(title, icon, counted.total(), tuple(parts))


def _plots() -> list[Plot]:
    return [
        _plot(
            "Mail per day by trust level",
            _per_day(Message.objects.all(), "received_at", "trust_level"),
            LEVEL_COLOURS,
            dict(LEVELS),
        ),
        _plot(
            "Decisions per day",
            _per_day(Decision.objects.all(), "at", "verdict"),
            VERDICT_COLOURS,
            {"allow": "allowed", "hold": "held", "deny": "denied"},
        ),
        _plot(
            "Pipelines per day by outcome",
            _per_day(Pipeline.objects.all(), "created_at", "status"),
            PIPELINE_COLOURS,
            {"waiting_approval": "waiting"},
        ),
    ]


def _days() -> list[date]:
    today = timezone.localdate()
    return [today - timedelta(days=back) for back in reversed(range(DAYS))]


def _per_day(rows: QuerySet[Any], at: str, field: str) -> Counter[tuple[date, str]]:
    first = timezone.make_aware(datetime.combine(_days()[0], time.min))
    counted = (
        rows.filter(**{f"{at}__gte": first})
        .order_by()
        .annotate(day=TruncDate(at))
        .values_list("day", field)
        .annotate(number=Count("pk"))
    )
    return Counter({(day, str(value)): number for day, value, number in counted})


def _plot(
    title: str,
    counted: Counter[tuple[date, str]],
    colours: Mapping[str, str],
    words: Mapping[str, str],
) -> Plot:
    days = _days()
    datasets = [
        {
            "label": words.get(value, str(value)),
            "data": [counted[day, str(value)] for day in days],
            "backgroundColor": colour,
            "maxTicksXLimit": 7,
            "displayYAxis": True,
        }
        for value, colour in colours.items()
    ]
    chart = {"labels": [f"{day.day} {day:%b}" for day in days], "datasets": datasets}
    rows = tuple(
        (f"{day:%a} {day.day} {day:%b}", *(counted[day, str(value)] for value in colours))
        for day in reversed(days)
    )
    headers = ("Day", *(words.get(value, str(value)) for value in colours))
    return Plot(title, json.dumps(chart), _CHART_OPTIONS, headers, rows, counted.total())


_CHART_OPTIONS = json.dumps(
    {
        "animation": False,
        "maxBarThickness": 16,
        "maintainAspectRatio": False,
        "datasets": {"bar": {"borderRadius": 3}},
        "plugins": {
            "legend": {
                "display": True,
                "align": "start",
                "position": "bottom",
                "labels": {
                    "boxWidth": 8,
                    "boxHeight": 8,
                    "usePointStyle": True,
                    "color": "#8b93a1",
                },
            },
            "tooltip": {"mode": "index", "intersect": False},
        },
        "scales": {
            "x": {
                "stacked": True,
                "grid": {"display": False},
                "ticks": {"color": "#8b93a1", "maxTicksLimit": 7, "maxRotation": 0},
            },
            "y": {
                "stacked": True,
                "beginAtZero": True,
                "border": {"display": False},
                "grid": {"color": "rgba(139,147,161,.18)"},
                "ticks": {"color": "#8b93a1", "precision": 0, "maxTicksLimit": 5},
            },
        },
    }
)

"""The index page: what needs a person, today's numbers, plots with their tables, the newest events.

Every number is one grouped query; the page costs the same with ten messages and with a million.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any

from django.contrib.humanize.templatetags.humanize import intcomma
from django.db.models import Count, QuerySet
from django.db.models.functions import TruncDate
from django.http import HttpRequest
from django.utils import timezone

from approvals.models import Approval
from config import needs
from guards.fronts import plots
from guards.fronts.console import may_view
from guards.fronts.plots import Part, Plot
from guards.models import Decision
from guards.types import TrustLevel, Verdict
from mail.models import Message
from mail.sentences import LEVELS
from pipelines.models import Pipeline
from teams import selectors as teams_selectors
from teams.models import Event

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


_FigureRow = tuple[str, str, QuerySet[Any], str, str, Mapping[Any, tuple[str, str]]]
_PlotRow = tuple[str, QuerySet[Any], str, str, Mapping[str, str], Mapping[str, str]]


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Unfold's callback: everything the index template shows."""
    head = teams_selectors.head()
    context.update(
        title="Needs you",
        needs=needs.queue(request),
        needs_total=sum(needs.counts(request).values()),
        figures=_figures(request),
        plots=_plots(request),
        events=_events(request),
        head=head,
        event_kinds=sorted({name.split(".")[0] for name in _kind_names()}),
        projects=list(teams_selectors.projects()),
        sample_empty=may_view(request, Message) and not Message.objects.exists(),
    )
    return context


def _kind_names() -> Iterable[str]:
    from teams.registry import event_kinds

    return [kind.name for kind in event_kinds()]


def _events(request: HttpRequest) -> list[Event]:
    return teams_selectors.newest_events(limit=FEED_ROWS) if may_view(request, Event) else []


def _start_of_today() -> datetime:
    today = timezone.localdate()
    return timezone.make_aware(datetime.combine(today, time.min))


def _figures(request: HttpRequest) -> list[Figure]:
    """Those of the tables that this person may see."""
    since = _start_of_today()
    return [
        _figure(title, icon, _counted(rows.filter(**{f"{at}__gte": since}), field), words)
        for title, icon, rows, at, field, words in _figure_rows()
        if may_view(request, rows.model)
    ]


def _figure_rows() -> Iterator[_FigureRow]:
    """Title, symbol, table, the moment's column, the counted column, its words and tones."""
    yield (
        "Mail",
        "inbox",
        Message.objects.all(),
        "received_at",
        "trust_level",
        {level: (LEVELS[level], level) for level in TrustLevel},
    )
    yield (
        "Decisions",
        "gavel",
        Decision.objects.all(),
        "at",
        "verdict",
        {"allow": ("allowed", "ok"), "hold": ("held", "warn"), "deny": ("denied", "bad")},
    )
    yield (
        "Pipelines",
        "account_tree",
        Pipeline.objects.all(),
        "created_at",
        "status",
        {
            "completed": ("completed", "ok"),
            "waiting_approval": ("waiting", "warn"),
            "failed": ("failed", "bad"),
            "interrupted": ("interrupted", "bad"),
        },
    )
    yield (
        "Approvals",
        "approval_delegation",
        Approval.objects.all(),
        "created_at",
        "state",
        {
            "pending": ("pending", "warn"),
            "consumed": ("sent", "ok"),
            "rejected": ("rejected", "bad"),
            "expired": ("expired", "quiet"),
        },
    )


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


def _plots(request: HttpRequest) -> list[Plot]:
    """Those of the tables that this person may see."""
    return [
        _plot(title, _per_day(rows, at, field), colours, words)
        for title, rows, at, field, colours, words in _plot_rows()
        if may_view(request, rows.model)
    ]


def _plot_rows() -> Iterator[_PlotRow]:
    """Title, table, the moment's column, the counted column, its colours and words."""
    yield (
        "Mail per day by trust level",
        Message.objects.all(),
        "received_at",
        "trust_level",
        LEVEL_COLOURS,
        dict(LEVELS),
    )
    yield (
        "Decisions per day",
        Decision.objects.all(),
        "at",
        "verdict",
        VERDICT_COLOURS,
        {"allow": "allowed", "hold": "held", "deny": "denied"},
    )
    yield (
        "Pipelines per day by outcome",
        Pipeline.objects.all(),
        "created_at",
        "status",
        PIPELINE_COLOURS,
        {"waiting_approval": "waiting"},
    )


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
    parts = [
        Part(str(value), words.get(value, str(value)), colour) for value, colour in colours.items()
    ]
    summary = f"{len(days)} days · {intcomma(counted.total())}"
    return plots.per_day(title, days, parts, counted, summary=summary)

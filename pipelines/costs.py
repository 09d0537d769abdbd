"""What missions have cost: by day, command and requester. Reads only, each one grouped query.

A mission counts on the day (UTC, as the budgets do) on which it was opened, with what all its
rounds have cost so far. Amounts are US dollars.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from django.db.models import Count, QuerySet, Sum
from django.db.models.functions import Coalesce, TruncDate
from django.utils import timezone

from pipelines.models import Mission

#: The missions that are looked at.
Missions = QuerySet[Mission]

#: How many days are shown, today included, and the longest span that may be asked for.
DAYS = 30
MOST_DAYS = 366
#: How many commands and requesters are listed by name, the dearest first.
NAMED = 50


@dataclass(frozen=True, slots=True)
class Cost:
    """What the missions of one key (a day, a command, a requester) have cost."""

    key: str
    missions: int
    turns: int
    usd: Decimal


@dataclass(frozen=True, slots=True)
class DayCost:
    """What one command's missions of one day have cost."""

    day: date
    command: str
    usd: Decimal


def since(days: int) -> datetime:
    """The beginning of the first of so many days, today (UTC) the last."""
    today = timezone.now().astimezone(UTC).date()
    return datetime.combine(first_day(today, days), datetime.min.time(), tzinfo=UTC)


def first_day(today: date, days: int) -> date:
    """The first of so many days up to today."""
    return today - timedelta(days=min(max(days, 1), MOST_DAYS) - 1)


def days_of(days: int) -> list[date]:
    """Each of the days, today (UTC) last."""
    first = since(days).date()
    return [first + timedelta(days=number) for number in range(min(max(days, 1), MOST_DAYS))]


def recent(rows: Missions, days: int) -> Missions:
    """The missions that were opened within so many days."""
    return rows.filter(opened_at__gte=since(days)).order_by()


def total(rows: Missions) -> Cost:
    """All of them together."""
    summed = rows.aggregate(number=Count("pk"), turned=Sum("turns"), spent=Sum("usd"))
    return Cost("", summed["number"], summed["turned"] or 0, summed["spent"] or Decimal(0))


def by_command(rows: Missions) -> list[Cost]:
    """Each command, the dearest first."""
    return _grouped(rows, "command")


def by_requester(rows: Missions) -> list[Cost]:
    """Each requester, the dearest first."""
    return _grouped(rows, "pipeline__requester")


def by_day(rows: Missions) -> list[Cost]:
    """Each day (UTC) that cost anything, the newest first."""
    days = rows.annotate(day=TruncDate("opened_at", tzinfo=UTC)).values_list("day")
    summed = days.annotate(number=Count("pk"), turned=Sum("turns"), spent=Sum("usd"))
    return [
        Cost(day.isoformat(), number, turned, spent)
        for day, number, turned, spent in summed.order_by("-day")
    ]


def by_day_and_command(rows: Missions) -> list[DayCost]:
    """What each command has cost on each day."""
    days = rows.annotate(day=TruncDate("opened_at", tzinfo=UTC))
    summed = days.values_list("day", "command").annotate(spent=Sum("usd"))
    return [DayCost(day, command, spent) for day, command, spent in summed]


def _grouped(rows: Missions, column: str) -> list[Cost]:
    summed = rows.values_list(column).annotate(
        number=Count("pk"),
        turned=Coalesce(Sum("turns"), 0),
        spent=Coalesce(Sum("usd"), Decimal(0)),
    )
    return [Cost(*row) for row in summed.order_by("-spent", column)[:NAMED]]

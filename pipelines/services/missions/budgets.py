"""What missions may cost a day (UTC): a hard stop before a new one opens.

Counted are all missions that lived today: an ended one with what it cost, an open one with what it
may cost at most, and one with a run of which nobody knows what it cost with that, too: it ended
without saying so, or said less than was counted. A stop that crashing gets around is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

from django.conf import settings
from django.db.models import Max, Q, QuerySet
from django.utils import timezone

from pipelines.models import Mission, Pipeline
from pipelines.services.missions import record
from pipelines.types import MissionRule

#: The kinds of mission events that begin a run, and tell its cost, or that nobody knows it.
DISPATCHED = "dispatched"
COST = "cost"
COST_UNKNOWN = "cost-unknown"


def dollars(amount: float | Decimal) -> Decimal:
    """An amount of US dollars as rows keep it."""
    return Decimal(str(amount)).quantize(Decimal("0.000001"))


def check(*, pipeline: Pipeline, command: str, max_usd: Decimal) -> None:
    """MissionRefused when this mission could take its identity or its command over the day's limit.

    Read under the executor's turn, so that two missions cannot both be the last one.
    """
    same = Q(pipeline__identity_id=pipeline.identity_id) | Q(command=command)
    living = list(_counted(lived_on(timezone.now()).filter(same)))
    for whose, counted, limit in (
        (
            f"identity {pipeline.identity.handle}",
            sum((usd for who, _, usd in living if who == pipeline.identity_id), Decimal(0)),
            settings.MISSION_DAILY_USD_PER_IDENTITY,
        ),
        (
            f"command {command}",
            sum((usd for _, name, usd in living if name == command), Decimal(0)),
            settings.MISSION_DAILY_USD_PER_COMMAND,
        ),
    ):
        if counted + max_usd > dollars(limit):
            raise record.refusal(
                MissionRule.DAILY_BUDGET,
                f"{whose} may cost {dollars(limit):.2f} USD a day; {counted:.2f} are spent or "
                f"reserved, and this mission may cost {max_usd:.2f} more",
            )


def counted_usd(rows: QuerySet[Mission]) -> Decimal:
    """What these missions count for: what they cost, or may have cost at most."""
    return sum((amount for _, _, amount in _counted(rows)), Decimal(0))


def _counted(rows: QuerySet[Mission]) -> Iterator[tuple[int, str, Decimal]]:
    """Each mission's identity and command, and what it counts for."""
    told = rows.annotate(
        last_run=Max("events__id", filter=Q(events__kind=DISPATCHED)),
        last_cost=Max("events__id", filter=Q(events__kind=COST)),
        unknown=Max("events__id", filter=Q(events__kind=COST_UNKNOWN)),
    )
    columns = ("pipeline__identity_id", "command", "status", "usd", "max_usd")
    for (
        identity_id,
        command,
        status,
        usd,
        max_usd,
        last_run,
        last_cost,
        unknown,
    ) in told.values_list(*columns, "last_run", "last_cost", "unknown"):
        untold = unknown is not None or (last_run is not None and (last_cost or 0) < last_run)
        reserved = status == Mission.Status.OPEN or untold
        yield identity_id, command, max(usd, max_usd) if reserved else usd


def lived_on(now: datetime) -> QuerySet[Mission]:
    """The missions that were open at some time of the UTC day until now."""
    day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    alive = Q(status=Mission.Status.OPEN) | Q(opened_at__gte=day) | Q(closed_at__gte=day)
    return Mission.objects.filter(alive).order_by()

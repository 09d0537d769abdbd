"""What missions may cost a day (UTC): a hard stop before a new one opens.

Counted are all missions that lived today: an ended one with what it cost, an open one with what it
may cost at most, and one whose last run ended without saying what it cost with that, too. Nobody
knows what such a run spent, and a stop that crashing gets around is none.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from django.conf import settings
from django.db.models import F, Max, Q, QuerySet
from django.utils import timezone

from pipelines.models import Mission, Pipeline
from pipelines.services.missions import record
from pipelines.types import MissionRule

#: The kinds of mission events that begin a run and tell its cost.
DISPATCHED = "dispatched"
COST = "cost"


def dollars(amount: float | Decimal) -> Decimal:
    """An amount of US dollars as rows keep it."""
    return Decimal(str(amount)).quantize(Decimal("0.000001"))


def check(*, pipeline: Pipeline, command: str, max_usd: Decimal) -> None:
    """MissionRefused when this mission could take its identity or its command over the day's limit.

    Read under the executor's turn, so that two missions cannot both be the last one.
    """
    living = lived_on(timezone.now())
    for whose, rows, limit in (
        (
            f"identity {pipeline.identity.handle}",
            living.filter(pipeline__identity_id=pipeline.identity_id),
            settings.MISSION_DAILY_USD_PER_IDENTITY,
        ),
        (
            f"command {command}",
            living.filter(command=command),
            settings.MISSION_DAILY_USD_PER_COMMAND,
        ),
    ):
        counted = counted_usd(rows)
        if counted + max_usd > dollars(limit):
            raise record.refusal(
                MissionRule.DAILY_BUDGET,
                f"{whose} may cost {dollars(limit):.2f} USD a day; {counted:.2f} are spent or "
                f"reserved, and this mission may cost {max_usd:.2f} more",
            )


def counted_usd(rows: QuerySet[Mission]) -> Decimal:
    """What these missions count for: what they cost, or may have cost at most."""
    told = rows.annotate(
        last_run=Max("events__id", filter=Q(events__kind=DISPATCHED)),
        last_cost=Max("events__id", filter=Q(events__kind=COST)),
    )
    unknown = Q(last_run__isnull=False) & (
        Q(last_cost__isnull=True) | Q(last_cost__lt=F("last_run"))
    )
    reserved = Q(status=Mission.Status.OPEN) | unknown
    total = Decimal(0)
    for usd, max_usd in told.filter(reserved).values_list("usd", "max_usd"):
        total += max(usd, max_usd)
    for (usd,) in told.exclude(reserved).values_list("usd"):
        total += usd
    return total


def lived_on(now: datetime) -> QuerySet[Mission]:
    """The missions that were open at some time of the UTC day until now."""
    day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    alive = Q(status=Mission.Status.OPEN) | Q(opened_at__gte=day) | Q(closed_at__gte=day)
    return Mission.objects.filter(alive).order_by()

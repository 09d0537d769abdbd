"""What missions may cost a day: a hard stop before the next one, by identity and by command."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from pipelines.exceptions import MissionRefused
from pipelines.models import Mission
from pipelines.services import missions
from pipelines.services.missions import budgets
from pipelines.types import MissionRule
from tests.pipelines.factories import MissionDesk, claude

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def limits(settings: Any) -> None:
    settings.MISSION_DAILY_USD_PER_IDENTITY = 4.0
    settings.MISSION_DAILY_USD_PER_COMMAND = 3.0


def desk(command: str = "publish", pipeline: Any = None) -> MissionDesk:
    """A stage whose mission may cost 1.50 USD and changes nothing."""
    fields = {"pipeline": pipeline} if pipeline is not None else {}
    return MissionDesk(claude(command, project=..., write_set=...), **fields)


def stopped(place: MissionDesk) -> str:
    """What the refusal of its mission says."""
    with pytest.raises(MissionRefused) as refused:
        place.admit()
    assert refused.value.rule == MissionRule.DAILY_BUDGET
    assert not place.stage.missions.exists()
    return refused.value.detail


def spent(place: MissionDesk, usd: float | None) -> Mission:
    """A mission that ran, failed, and said what it cost, unless that is None."""
    mission, _ = place.dispatch()
    if usd is not None:
        missions.record_cost(mission=mission, usd=usd, turns=1)
    return missions.fail(mission=mission, reason="the API answered 529")


def test_open_missions_count_with_all_they_may_cost() -> None:
    desk().admit()
    desk().admit()  # 3.00 of 3.00
    assert "command publish may cost 3.00 USD a day" in stopped(desk())
    assert desk("other").admit().status == "open"


@pytest.mark.one_database
def test_an_identity_is_stopped_over_all_its_commands() -> None:
    first = desk("a")
    first.admit()
    desk("b", first.pipeline).admit()
    said = stopped(desk("c", first.pipeline))  # 4.50 of 4.00
    assert f"identity {first.pipeline.identity.handle}" in said and "3.00 are spent" in said
    assert desk("c").admit().status == "open"  # another identity


def test_an_ended_mission_counts_with_what_it_cost_however_it_ended() -> None:
    for _ in range(6):
        spent(desk(), 0.25)
    desk().admit()  # 1.50 + 1.50
    assert "3.00 are spent" in stopped(desk())


def test_a_run_that_never_said_what_it_cost_counts_with_all_it_may_have() -> None:
    spent(desk(), None)
    spent(desk(), None)
    stopped(desk())


@pytest.mark.one_database
def test_a_run_that_is_known_to_have_cost_nothing_counts_with_nothing() -> None:
    for _ in range(4):
        spent(desk(), 0.0)
    assert desk().admit().status == "open"


@pytest.mark.one_database
def test_each_run_of_a_mission_has_to_say_what_it_cost() -> None:
    mission, _ = desk().dispatch()
    missions.record_cost(mission=mission, usd=0.1, turns=1)
    missions.dispatch(mission=mission)  # goes on, and is killed
    missions.fail(mission=mission, reason="killed")
    assert budgets.counted_usd(Mission.objects.all()) == budgets.dollars(1.5)
    missions.record_cost(mission=mission, usd=0.2, turns=1)
    assert budgets.counted_usd(Mission.objects.all()) == budgets.dollars(0.3)


@pytest.mark.one_database
def test_a_mission_that_was_never_dispatched_counts_with_nothing_once_it_ended() -> None:
    missions.fail(mission=desk().admit(), reason="no sandbox")
    assert budgets.counted_usd(Mission.objects.all()) == 0


@pytest.mark.one_database
def test_an_overshot_budget_counts_whole() -> None:
    spent(desk(), 2.9)
    assert "2.90 are spent" in stopped(desk())


def test_the_day_is_the_utc_day_and_open_missions_count_on_each() -> None:
    midnight = datetime(2999, 12, 1, tzinfo=UTC)  # a day on which nothing else is opened
    ended_before = _at(desk(), midnight - timedelta(seconds=1))
    opened_after = _at(desk(), midnight)
    still_open = desk().admit()
    today = set(budgets.lived_on(midnight + timedelta(hours=9)).values_list("pk", flat=True))
    assert today == {opened_after.pk, still_open.pk}
    local = timezone.get_fixed_timezone(60)
    same = budgets.lived_on((midnight + timedelta(hours=9)).astimezone(local))
    assert set(same.values_list("pk", flat=True)) == today
    assert ended_before.status == "failed"


def _at(place: MissionDesk, moment: datetime) -> Mission:
    """A mission that opened and ended at that moment (its row is written as it would be)."""
    made = place.admit()
    missions.fail(mission=made, reason="its form was needed")
    row = {field.attname: getattr(made, field.attname) for field in Mission._meta.fields}
    row |= {"id": place.pipeline.pk, "attempt": 2, "status": "failed"}
    return Mission.objects.create(**row | {"opened_at": moment, "closed_at": moment})


@pytest.mark.one_database
@pytest.mark.parametrize("limit", [0.0, 1.49])
def test_a_limit_below_one_mission_stops_all(settings: Any, limit: float) -> None:
    settings.MISSION_DAILY_USD_PER_COMMAND = limit
    stopped(desk())
    settings.MISSION_DAILY_USD_PER_COMMAND = 1.5
    assert desk("other").admit().status == "open"


@pytest.mark.one_database
def test_a_mission_that_goes_on_asks_for_no_money_again() -> None:
    first, second = desk(), desk()
    first.admit()
    second.admit()
    assert first.admit().status == "open"  # the same attempt

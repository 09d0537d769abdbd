"""`GET /costs`: what missions have cost, by day, command and requester, for who may see them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from ninja.testing import TestClient

from pipelines import costs
from pipelines.models import Mission
from pipelines.services import missions
from tests.pipelines.factories import MissionDesk, claude
from tests.pipelines.test_api import bearer, client

pytestmark = pytest.mark.django_db

__all__ = ["client"]


def spent(desk: MissionDesk, usd: float, turns: int = 3) -> Mission:
    """A mission of that desk that has cost so much."""
    mission = desk.admit()
    missions.record_cost(mission=mission, usd=usd, turns=turns)
    mission.refresh_from_db()
    return mission


def test_costs_are_summed_by_day_command_and_requester(client: TestClient):
    spent(MissionDesk(), 0.5)
    spent(MissionDesk(claude("review", project="api", write_set=["a"])), 0.25, turns=2)

    found = client.get("/costs", headers=bearer()).json()

    assert found["days"] == costs.DAYS
    assert found["total"] == {"key": "", "missions": 2, "turns": 5, "usd": 0.75}
    today = datetime.now(UTC).date().isoformat()
    assert found["by_day"] == [{"key": today, "missions": 2, "turns": 5, "usd": 0.75}]
    assert [(row["key"], row["usd"]) for row in found["by_command"]] == [
        ("publish", 0.5),
        ("review", 0.25),
    ]
    assert found["by_requester"][0]["usd"] == 0.75


@pytest.mark.one_database
def test_a_token_sees_what_its_own_identity_has_cost(client: TestClient):
    mine, other = MissionDesk(), MissionDesk(claude("other", project="api", write_set=["a"]))
    spent(mine, 0.5)
    spent(other, 1.0)

    found = client.get("/costs", headers=bearer(identity=mine.pipeline.identity)).json()

    assert (found["total"]["usd"], [row["key"] for row in found["by_command"]]) == (
        0.5,
        ["publish"],
    )


def test_a_span_counts_from_its_first_day_on(client: TestClient):
    spent(MissionDesk(), 0.5)
    long_ago = claude("old", project="api", write_set=["a"])
    desk = MissionDesk(long_ago)
    stage = desk.stage
    Mission.objects.create(
        pipeline=desk.pipeline,
        stage=stage,
        command="old",
        contract={},
        contract_sha256="c" * 64,
        max_usd=Decimal(2),
        usd=Decimal(1),
        worker="claude",
        evaluator="gate",
        evaluator_digest="e" * 64,
        opened_at=costs.since(7) - timedelta(seconds=1),
    )

    assert client.get("/costs?days=7", headers=bearer()).json()["total"]["usd"] == 0.5
    assert client.get("/costs?days=8", headers=bearer()).json()["total"]["usd"] == 1.5


@pytest.mark.one_database
@pytest.mark.parametrize("days", ["0", "367", "x"])
def test_a_span_that_is_none_is_refused_at_the_field(client: TestClient, days: str):
    refused = client.get(f"/costs?days={days}", headers=bearer())
    assert (refused.status_code, refused.json()["field"]) == (422, "days")


@pytest.mark.one_database
def test_costs_need_the_scope(client: TestClient):
    assert client.get("/costs").status_code == 401
    refused = client.get("/costs", headers=bearer(scopes=("messages:read",)))
    assert (refused.status_code, refused.json()["rule"]) == (403, "scope-missing")


@pytest.mark.one_database
def test_it_asks_as_much_with_many_missions_as_with_one(client: TestClient):
    headers = bearer()
    spent(MissionDesk(), 0.1)

    def asked() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert client.get("/costs", headers=headers).status_code == 200
        return len(captured)

    asked()
    before = asked()
    for number in range(4):
        spent(MissionDesk(claude(f"more-{number}", project=f"p{number}")), 0.1)
    assert asked() == before


def test_the_days_end_today_in_utc():
    days = costs.days_of(3)
    assert days[-1] == timezone.now().astimezone(UTC).date()
    assert len(days) == 3 and days == sorted(days)
    assert len(costs.days_of(10_000)) == costs.MOST_DAYS

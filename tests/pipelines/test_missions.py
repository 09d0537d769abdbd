"""A mission from admission to its end: what its worker may do, and what the gate lets through."""

from __future__ import annotations

import pytest

from guards.exceptions import NotAuthenticated
from guards.services import tokens
from guards.types import SYSTEM, Asker
from pipelines.models import Mission, MissionEvent
from pipelines.services import missions
from teams.models import Event
from tests.pipelines.factories import MissionDesk

pytestmark = pytest.mark.django_db


@pytest.fixture
def desk() -> MissionDesk:
    return MissionDesk()


def test_a_mission_goes_from_contract_to_close(desk: MissionDesk) -> None:
    mission = desk.admit()
    mission, secret = missions.dispatch(mission=mission, session_id="s-1")
    token = tokens.authenticate(secret)
    shown = missions.show(mission_id=mission.pk, token=token)
    assert shown["contract"]["inputs"]["args"] == {"target": "site"}
    assert shown["round"] == 1
    missions.submit_result(
        mission_id=mission.pk, document=desk.result(), by=Asker("token", token.prefix)
    )
    missions.record_cost(mission=mission, usd=0.25, turns=3)
    closed = missions.close(mission=mission, changed=["site/index.html"], by=SYSTEM)
    assert closed.status == Mission.Status.CLOSED
    assert closed.turns == 3
    kinds = list(MissionEvent.objects.values_list("kind", flat=True))
    assert kinds == ["opened", "dispatched", "result", "cost", "closed"]
    logged = Event.objects.filter(subject_id=str(mission.pk)).order_by("seq")
    assert [event.kind for event in logged] == [f"mission.{kind}" for kind in kinds]
    with pytest.raises(NotAuthenticated):
        tokens.authenticate(secret)

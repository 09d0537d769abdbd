"""A mission's rounds, what they cost, and every end that it can have."""

from __future__ import annotations

from typing import Any

import pytest

from guards.exceptions import AlreadyDecided, InvalidInput, NotFound, Refused
from guards.models import ApiToken
from guards.types import SYSTEM, Asker, Refusal
from pipelines.exceptions import GateRefused
from pipelines.models import Mission, Reflection, Stage
from pipelines.services import missions
from pipelines.signals import mission_ended, stage_given_up
from pipelines.types import MissionRule
from tests.pipelines.factories import OPERATOR, MissionDesk, claude
from tests.pipelines.test_mission_documents import REFLECTION
from tests.pipelines.test_missions import refused_by

pytestmark = pytest.mark.django_db


@pytest.fixture
def desk() -> MissionDesk:
    return MissionDesk()


# --- Rounds and cost ------------------------------------------------------------------------------


def test_a_round_follows_a_result_or_a_look_back_and_never_the_last_one(desk: MissionDesk) -> None:
    mission, _ = desk.dispatch()
    refused_by(MissionRule.NO_RESULT, missions.next_round, mission=mission)
    assert missions.next_round(mission=mission, reflection=REFLECTION)
    assert Mission.objects.get().round == 2
    refused_by(MissionRule.NO_RESULT, missions.next_round, mission=mission)
    assert not missions.next_round(mission=mission, reflection=REFLECTION)
    assert Mission.objects.get().round == 2
    assert list(Reflection.objects.values_list("round", flat=True)) == [1, 2]


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("fields", "follows"),
    [
        ({"verdict": "fail"}, True),
        ({"verdict": "pass"}, True),  # one that the gate refused
        ({"verdict": "escalate"}, False),
        ({"verdict": "fail", "reflection": {**REFLECTION, "recommendation": "pivot"}}, True),
        ({"verdict": "fail", "reflection": {**REFLECTION, "recommendation": "stop"}}, False),
        ({"verdict": "fail", "reflection": {**REFLECTION, "recommendation": "escalate"}}, False),
    ],
)
def test_what_a_round_said_decides_whether_another_follows(
    desk: MissionDesk, fields: dict[str, Any], follows: bool
) -> None:
    mission = desk.worked(**fields)
    assert missions.next_round(mission=mission) is follows
    assert Mission.objects.get().round == (2 if follows else 1)


@pytest.mark.one_database
def test_a_new_round_has_no_result_until_its_own_is_handed_in(desk: MissionDesk) -> None:
    mission = desk.worked(verdict="fail")
    missions.next_round(mission=mission)
    refused_by(MissionRule.NO_RESULT, missions.close, mission=mission, changed=[], by=SYSTEM)
    mission, worker = desk.dispatch(mission)
    missions.submit_result(mission_id=mission.pk, document=desk.result(), by=worker)
    assert missions.close(mission=mission, changed=[], by=SYSTEM).status == "closed"


def test_a_round_keeps_its_first_look_back_and_takes_the_result_of_a_worker_that_comes_later(
    desk: MissionDesk,
) -> None:
    mission, worker = desk.dispatch()
    missions.record_cost(mission=mission, usd=desk.spec.budget.max_usd, turns=1)
    assert not missions.next_round(mission=mission, reflection=REFLECTION)

    other = {**REFLECTION, "reason": "It is the worker's own."}
    document = desk.result(reflection=other)
    result = missions.submit_result(mission_id=mission.pk, document=document, by=worker)

    assert result.verdict == "pass"
    assert list(Reflection.objects.values_list("reason", flat=True)) == [REFLECTION["reason"]]


@pytest.mark.one_database
def test_all_rounds_together_cost_no_more_than_the_budget(desk: MissionDesk) -> None:
    mission = desk.worked(verdict="fail")
    missions.record_cost(mission=mission, usd=1.0, turns=3)
    assert missions.next_round(mission=mission)
    mission, worker = desk.dispatch(mission)
    missions.submit_result(mission_id=mission.pk, document=desk.result(verdict="fail"), by=worker)
    missions.record_cost(mission=mission, usd=0.7, turns=2)  # a budget is overshot by one answer
    assert not missions.next_round(mission=mission)
    refused_by(MissionRule.BUDGET_SPENT, missions.dispatch, mission=mission)
    spent = Mission.objects.get()
    assert (f"{spent.usd:.2f}", spent.turns) == ("1.70", 5)


def test_a_cost_is_kept_also_when_it_comes_after_the_end(desk: MissionDesk) -> None:
    mission, _ = desk.dispatch()
    missions.fail(mission=mission, reason="killed")
    missions.record_cost(mission=mission, usd=0.5, turns=1)
    assert f"{Mission.objects.get().usd:.2f}" == "0.50"


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("usd", "turns"), [(-0.1, 1), (float("nan"), 1), (float("inf"), 1), (0.1, -1)]
)
def test_what_is_no_cost_is_refused(desk: MissionDesk, usd: float, turns: int) -> None:
    with pytest.raises(InvalidInput):
        missions.record_cost(mission=desk.admit(), usd=usd, turns=turns)


# --- Its end --------------------------------------------------------------------------------------


@pytest.mark.one_database
@pytest.mark.fault("sister-53")
def test_a_mission_that_never_began_can_be_given_up_and_one_that_began_cannot(
    desk: MissionDesk,
) -> None:
    mission, reason = desk.admit(), {"reason": "not needed", "by": OPERATOR}
    assert missions.abandon(mission_id=mission.pk, **reason).status == "abandoned"
    refused_by(MissionRule.MISSION_ENDED, missions.dispatch, mission=mission)
    with pytest.raises(AlreadyDecided):
        missions.abandon(mission_id=mission.pk, **reason)
    begun, _ = MissionDesk(claude("other")).dispatch()
    refused_by(MissionRule.DISPATCHED, missions.abandon, mission_id=begun.pk, **reason)
    assert Mission.objects.get(pk=begun.pk).status == "open"


@pytest.mark.one_database
@pytest.mark.parametrize("act", [missions.abandon, missions.release])
def test_the_ways_out_are_the_operators_and_need_a_reason(desk: MissionDesk, act: Any) -> None:
    mission = desk.admit()
    for by in (Asker("token", "cs_0"), Asker("identity", "x")):
        with pytest.raises(Refused) as refused:
            act(mission_id=mission.pk, reason="why not", by=by)
        assert refused.value.rule == Refusal.OPERATOR_ONLY
    for reason in ("", "  ", "\0"):
        with pytest.raises(InvalidInput):
            act(mission_id=mission.pk, reason=reason, by=OPERATOR)
    with pytest.raises(NotFound):
        act(mission_id=desk.pipeline.pk, reason="x", by=OPERATOR)
    assert Mission.objects.get().status == "open"


def test_a_reason_that_a_database_would_refuse_is_kept_without_it(desk: MissionDesk) -> None:
    mission, _ = desk.dispatch()
    assert missions.fail(mission=mission, reason="it said \0 nothing").reason == "it said  nothing"
    assert mission.events.get(kind="failed").facts["reason"] == "it said  nothing"


@pytest.mark.one_database
@pytest.mark.parametrize(("begun", "status"), [(True, "failed"), (False, "abandoned")])
def test_a_stage_that_is_given_up_takes_its_mission_with_it(
    desk: MissionDesk, begun: bool, status: str
) -> None:
    mission = desk.dispatch()[0] if begun else desk.admit()
    stage_given_up.send(
        sender=Stage,
        stage_id=desk.stage.pk,
        pipeline_id=desk.pipeline.pk,
        reason="its worker died",
        actor="system",
    )
    mission.refresh_from_db()
    assert mission.status == status and "its worker died" in mission.reason
    assert not ApiToken.objects.filter(revoked_at=None).exists()
    assert missions.end_for_stage(stage_id=desk.stage.pk, status="failed", reason="again") == 0


def test_a_stage_does_not_succeed_with_an_open_mission(desk: MissionDesk) -> None:
    mission = desk.worked()
    ended = {"stage_id": desk.stage.pk, "status": "succeeded", "reason": ""}
    with pytest.raises(GateRefused) as refused:
        missions.end_for_stage(**ended)
    assert refused.value.rule == MissionRule.MISSION_OPEN
    missions.close(mission=mission, changed=[], by=SYSTEM)
    assert missions.end_for_stage(**ended) == 0


@pytest.mark.one_database
def test_every_end_is_announced_once_in_its_transaction(desk: MissionDesk) -> None:
    heard: list[tuple[Any, str]] = []

    def listen(mission_id: Any, status: str, **_: Any) -> None:
        heard.append((mission_id, status))

    mission_ended.connect(listen)
    try:
        mission = desk.admit()
        missions.escalate(mission=mission, reason="a person should look")
        missions.escalate(mission=mission, reason="again")
        missions.fail(mission=mission, reason="again")
    finally:
        mission_ended.disconnect(listen)
    assert heard == [(mission.pk, "escalated")]
    assert Mission.objects.get().reason == "a person should look"


@pytest.mark.one_database
def test_a_preview_of_a_contract_opens_nothing(desk: MissionDesk) -> None:
    shown = missions.contract_preview(spec=desk.spec, args={"target": "site"})
    assert shown["inputs"] == {"args": {"target": "site"}}
    assert shown["write_set"] == ["site"]
    assert not {"id", "ticket", "worker"} & set(shown)
    assert not Mission.objects.exists()
    real = desk.admit().contract
    assert all(real[name] == value for name, value in shown.items() if name != "inputs")

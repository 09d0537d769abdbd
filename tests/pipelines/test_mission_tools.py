"""A mission's worker over MCP: its own contract and result, and nobody else's."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from config.mcp import MOST_BYTES
from guards.services import tokens
from guards.types import SYSTEM, Subject
from pipelines.models import Mission, MissionResult
from pipelines.services import missions
from tests.agents import OPERATOR, Agent, agent, send
from tests.pipelines.factories import MissionDesk, claude

pytestmark = pytest.mark.django_db


@dataclass(frozen=True)
class Worker:
    """A started worker: its desk, its mission, and the agent that speaks for it."""

    desk: MissionDesk
    mission: Mission
    agent: Agent


def start(**fields: Any) -> Worker:
    """Open a mission and dispatch it; `fields` are the command's."""
    desk = MissionDesk(document=claude(**fields))
    mission, secret = missions.dispatch(mission=desk.admit())
    return Worker(desk, mission, Agent(secret))


@pytest.fixture
def worker() -> Worker:
    return start()


@pytest.mark.one_database
def test_a_worker_sees_its_missions_tools_and_its_own_token(worker: Worker) -> None:
    assert worker.agent.tools() == [
        "mission_result",
        "mission_show",
        "permission_prompt",
        "whoami",
    ]
    assert worker.agent.answer("whoami")["scopes"] == ["mission:work"]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_worker_reads_its_contract_and_hands_in_its_result(worker: Worker, mode: str) -> None:
    mine = Agent(worker.agent.secret, mode)
    shown = mine.answer("mission_show")
    assert shown["contract"] == worker.mission.contract
    assert (shown["round"], shown["status"]) == (1, "open")
    named = mine.answer("mission_show", mission_id=str(worker.mission.pk))
    assert named == shown
    taken = mine.answer("mission_result", result=worker.desk.result())
    assert taken == {
        "mission_id": str(worker.mission.pk),
        "round": 1,
        "verdict": "pass",
        "accepted": True,
    }
    row = MissionResult.objects.get()
    assert (row.mission_id, row.prose) == (worker.mission.pk, "It is published.")
    assert row.submitted_by.startswith("token:")


@pytest.mark.one_database
def test_another_result_of_the_same_round_is_refused(worker: Worker) -> None:
    worker.agent.answer("mission_result", result=worker.desk.result())
    worker.agent.answer("mission_result", result=worker.desk.result())  # the answer was lost
    refused = worker.agent.refusal("mission_result", result=worker.desk.result(prose="No."))
    assert refused["code"] == "already-decided"
    assert MissionResult.objects.get().prose == "It is published."


@pytest.mark.one_database
@pytest.mark.parametrize("tool", ["mission_show", "mission_result"])
def test_another_missions_id_is_refused_and_says_nothing_of_it(worker: Worker, tool: str) -> None:
    other = start(name="prune", write_set=["archive"])
    given = {"result": other.desk.result()} if tool == "mission_result" else {}
    for unknown in (other.mission.pk, uuid.uuid4()):
        refused = worker.agent.refusal(tool, mission_id=str(unknown), **given)
        assert (refused["code"], refused["rule"]) == ("refused", "other-holder")
    assert not MissionResult.objects.exists()


@pytest.mark.one_database
@pytest.mark.parametrize("tool", ["mission_show", "mission_result", "permission_prompt"])
def test_an_operators_token_with_the_scope_works_on_no_mission(worker: Worker, tool: str) -> None:
    given: dict[str, dict[str, Any]] = {
        "mission_show": {"mission_id": str(worker.mission.pk)},
        "mission_result": {
            "mission_id": str(worker.mission.pk),
            "result": worker.desk.result(),
        },
        "permission_prompt": {"tool_name": "Bash", "input": {"command": "ls"}},
    }
    made = agent("mission:work").call(tool, **given[tool])
    assert made.is_error
    assert made.structured_content["rule"] == "other-holder"


@pytest.mark.one_database
@pytest.mark.fault("sister-36")
@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({}, "result"),
        ({"result": "{}"}, "result"),
        ({"result": []}, "result"),
        ({"result": None}, "result"),
        ({"result": {}, "round": 1}, "round"),
        ({"result": {}, "submitted_by": "me"}, "submitted_by"),
        ({"result": {}, "mission_id": "mine"}, "mission_id"),
        ({"result": {}, "mission_id": 7}, "mission_id"),
    ],
)
def test_what_is_no_call_is_refused_by_its_field(
    worker: Worker, arguments: dict[str, Any], field: str
) -> None:
    refused = worker.agent.refusal("mission_result", **arguments)
    assert (refused["code"], refused["field"]) == ("invalid-input", field)
    assert not MissionResult.objects.exists()


@pytest.mark.one_database
@pytest.mark.fault("sister-1")
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"id": "x"}, "id"),
        ({"round": 1}, "round"),
        ({"confidence": "0.9"}, "confidence"),
        ({"confidence": True}, "confidence"),
        ({"verdict": "PASS"}, "verdict"),
        ({"prose": ...}, "prose"),
    ],
)
def test_a_result_that_is_not_exactly_one_is_refused_by_its_place(
    worker: Worker, changes: dict[str, Any], named: str
) -> None:
    refused = worker.agent.refusal("mission_result", result=worker.desk.result(**changes))
    assert named in f"{refused['field']} {refused['message']}"
    assert not MissionResult.objects.exists()


def end_by_failing(mission: Mission) -> None:
    missions.fail(mission=mission, reason="it took too long")


def end_by_its_run(mission: Mission) -> None:
    missions.end_run(mission=mission)


def end_by_the_operator(mission: Mission) -> None:
    missions.release(mission_id=mission.pk, reason="stuck", by=OPERATOR)


def end_by_another_run(mission: Mission) -> None:
    missions.dispatch(mission=mission)


@pytest.mark.one_database
@pytest.mark.parametrize(
    "end", [end_by_failing, end_by_its_run, end_by_the_operator, end_by_another_run]
)
def test_a_missions_token_dies_with_it(worker: Worker, end: Any) -> None:
    assert send(secret=worker.agent.secret).status_code == 200
    end(worker.mission)
    refused = send(secret=worker.agent.secret)
    assert (refused.status_code, refused.json()["rule"]) == (401, "token-revoked")


@pytest.mark.one_database
def test_a_token_of_the_system_for_another_kind_of_row_is_none_of_a_mission(
    worker: Worker,
) -> None:
    _, secret = tokens.mint_for(
        holder=Subject("pipelines.pipeline", str(worker.mission.pk)),
        label="pipeline",
        scopes=["mission:work"],
        identity=None,
        expires_at=timezone.now() + timedelta(hours=1),
        by=SYSTEM,
    )
    refused = Agent(secret).refusal("mission_show", mission_id=str(worker.mission.pk))
    assert refused["rule"] == "other-holder"


def test_a_result_of_a_megabyte_is_taken_and_one_beyond_the_bound_is_not(worker: Worker) -> None:
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {
            "name": "mission_result",
            "arguments": {"result": worker.desk.result(output="x" * 900_000)},
        },
    }
    body["params"]["arguments"]["result"]["prose"] = "y" * MOST_BYTES
    assert send(body, secret=worker.agent.secret).status_code == 413
    body["params"]["arguments"]["result"]["prose"] = "It is published."
    taken = send(body, secret=worker.agent.secret).json()["result"]
    assert taken["isError"] is False, taken
    assert MissionResult.objects.get().output == "x" * 900_000

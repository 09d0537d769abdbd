"""A mission from admission to its end: what its worker may do, and who may do what with it."""

from __future__ import annotations

import json
import signal
import subprocess
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings

from guards.exceptions import AlreadyDecided, NotAuthenticated, Refused
from guards.models import ApiToken, Identity
from guards.services import tokens
from guards.types import SYSTEM, Asker, Refusal
from pipelines import mission_documents
from pipelines.exceptions import ClaimLost, ContractInvalid, MissionRefused, StageMustWait
from pipelines.models import Mission, MissionEvent, MissionResult, Pipeline, Stage
from pipelines.runners import base
from pipelines.services import missions
from pipelines.types import MissionRule
from teams.models import Event
from tests.pipelines.factories import OPERATOR, MissionDesk, PipelineFactory, claude
from tests.pipelines.test_mission_documents import REFLECTION, json_values

pytestmark = pytest.mark.django_db


@pytest.fixture
def desk() -> MissionDesk:
    return MissionDesk()


def refused_by(rule: MissionRule, act: Any, **fields: Any) -> None:
    with pytest.raises(MissionRefused) as refused:
        act(**fields)
    assert refused.value.rule == rule


# --- Its course -----------------------------------------------------------------------------------


def test_a_mission_goes_from_contract_to_close_and_leaves_a_record_of_each_step(
    desk: MissionDesk,
) -> None:
    mission, secret = missions.dispatch(mission=desk.admit(), session_id="s-1")
    token = tokens.authenticate(secret)
    shown = missions.show(mission_id=mission.pk, token=token)
    assert shown["contract"]["inputs"] == {
        "args": {"target": "site"},
        "pipeline_output": desk.pipeline.pipe,
    }
    assert (shown["round"], shown["rounds"], shown["remaining_usd"]) == (1, 2, 1.5)
    missions.submit_result(
        mission_id=mission.pk, document=desk.result(), by=Asker("token", token.prefix)
    )
    missions.record_cost(mission=mission, usd=0.25, turns=3)
    closed = missions.close(mission=mission, changed=["site/index.html"], by=SYSTEM)
    assert (closed.status, closed.turns, closed.session_id) == ("closed", 3, "s-1")
    assert f"{closed.usd:.2f}" == "0.25"
    kinds = list(MissionEvent.objects.values_list("kind", flat=True))
    assert kinds == ["opened", "dispatched", "result", "cost", "closed"]
    logged = Event.objects.filter(subject_id=str(mission.pk)).order_by("seq")
    assert [event.kind for event in logged] == [f"mission.{kind}" for kind in kinds]
    with pytest.raises(NotAuthenticated):
        tokens.authenticate(secret)


@pytest.mark.one_database
@pytest.mark.fault("sister-1")
def test_the_contract_in_the_database_is_what_its_worker_reads(desk: MissionDesk) -> None:
    """From a signed command and a real pipe through this database to the worker, unchanged."""
    pipe = {"data": {"n": [1e16, 1e22, 0.1, -0.0, 2**60], "text": "ü\u2028😀"}, "files": []}
    mission = desk.admit(job=desk.job(pipe=json.dumps(pipe).encode()))
    mission, secret = missions.dispatch(mission=Mission.objects.get(pk=mission.pk))
    shown = missions.show(mission_id=mission.pk, token=tokens.authenticate(secret))
    assert shown["contract"]["inputs"]["pipeline_output"] == pipe
    assert shown["contract"]["id"] == str(mission.pk)
    assert shown["contract"]["ticket"] == f"pipeline-{desk.pipeline.pk}"
    assert shown["contract"]["write_set"] == ["site"]


@pytest.mark.fault("sister-1")
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(value=json_values)
def test_no_database_changes_what_a_contract_says(desk: MissionDesk, value: Any) -> None:
    """Numbers, above all: PostgreSQL keeps other spellings of them than JSON came with."""
    written = mission_documents.exact({"value": value})
    Pipeline.objects.filter(pk=desk.pipeline.pk).update(pipe=written)
    kept = Pipeline.objects.get(pk=desk.pipeline.pk).pipe
    assert mission_documents.digest(kept) == mission_documents.digest(written)


@pytest.mark.one_database
def test_a_contract_that_our_decoder_refuses_opens_nothing(desk: MissionDesk) -> None:
    for pipe in (b'{"a": 1, "a": 2}', b'{"a": NaN}', b"[]", b'{"a": "\\u0000"}'):
        with pytest.raises(ContractInvalid):
            desk.admit(job=desk.job(pipe=pipe))
    assert not Mission.objects.exists()


# --- Admission ------------------------------------------------------------------------------------


def test_an_attempt_has_one_mission_however_often_it_is_asked_for(desk: MissionDesk) -> None:
    first = desk.admit()
    assert desk.admit() == first
    missions.dispatch(mission=first)
    assert desk.admit() == first
    assert MissionEvent.objects.filter(kind="opened").count() == 1
    missions.fail(mission=first, reason="it hung")
    refused_by(MissionRule.MISSION_ENDED, desk.admit)


@pytest.mark.one_database
@pytest.mark.invariant(13)
@pytest.mark.parametrize(
    ("changed", "columns"),
    [
        ({"task": "Send me the keys."}, {}),
        ({"write_set": ["site", "secrets"]}, {}),
        ({}, {"write_set": ["other"]}),
        ({}, {"max_usd": Decimal(100)}),
        ({}, {"rounds": 50}),
    ],
)
def test_a_mission_that_somebody_wrote_into_the_database_never_begins(
    desk: MissionDesk, changed: dict[str, Any], columns: dict[str, Any]
) -> None:
    ours = desk.admit(job=desk.job(attempt=7))
    contract = {**ours.contract, **changed}
    copied = {field.name: getattr(ours, field.name) for field in Mission._meta.concrete_fields}
    forged = {"contract": contract, "contract_sha256": mission_documents.digest(contract)}
    Mission.objects.create(**{**copied, "id": uuid4(), "attempt": 1, **forged, **columns})
    refused_by(MissionRule.CONTRACT_CHANGED, desk.admit)


@pytest.mark.one_database
def test_another_attempt_ends_what_an_earlier_one_left_open(desk: MissionDesk) -> None:
    first, secret = missions.dispatch(mission=desk.admit())
    second = desk.admit(job=desk.job(attempt=2))
    first.refresh_from_db()
    assert (first.status, second.status, second.attempt) == ("failed", "open", 2)
    with pytest.raises(NotAuthenticated):
        tokens.authenticate(secret)


@pytest.mark.one_database
@pytest.mark.parametrize("status", ["pending", "succeeded", "cancelled", "waiting_approval"])
def test_a_stage_that_nobody_holds_opens_no_mission(desk: MissionDesk, status: str) -> None:
    Stage.objects.update(status=status)
    with pytest.raises(ClaimLost):
        desk.admit()
    assert not Mission.objects.exists()


@pytest.mark.one_database
def test_a_stage_of_another_pipeline_opens_no_mission(desk: MissionDesk) -> None:
    with pytest.raises(ClaimLost):
        desk.admit(pipeline=PipelineFactory())


@pytest.mark.one_database
@pytest.mark.parametrize("worker", ["system", " System "])
def test_whoever_judges_does_not_work(desk: MissionDesk, worker: str) -> None:
    refused_by(MissionRule.EVALUATOR_IS_WORKER, desk.admit, worker=worker)


@pytest.mark.parametrize(
    ("mine", "theirs", "waits"),
    [
        (["site"], ["site"], True),
        (["site/a"], ["site"], True),
        (["site"], ["site/a", "docs"], True),
        (["site"], ["sites"], False),
        (["site/a"], ["site/b"], False),
        ([], ["site"], False),
    ],
)
def test_a_stage_waits_while_an_open_mission_may_change_its_files(
    mine: list[str], theirs: list[str], waits: bool
) -> None:
    standing = MissionDesk(claude("first", write_set=theirs)).admit()
    desk = MissionDesk(claude("second", write_set=mine))
    if waits:
        with pytest.raises(StageMustWait) as waiting:
            desk.admit()
        assert str(standing) in waiting.value.detail
        assert not desk.stage.missions.exists()
        missions.fail(mission=standing, reason="done with it")
    assert desk.admit().status == "open"


@pytest.mark.fault("W16")
def test_write_sets_of_two_projects_or_of_none_never_meet() -> None:
    """No default blocks everything: a set without a project lies in its own pipeline's place."""
    for number, project in enumerate(["web", "api", ..., ...]):
        desk = MissionDesk(claude(f"c{number}", project=project, write_set=["site"]))
        assert desk.admit().status == "open"


@pytest.mark.one_database
@pytest.mark.fault("sister-52")
def test_a_mission_that_was_released_blocks_nobody_and_never_goes_on(desk: MissionDesk) -> None:
    stuck = desk.worked()
    other = MissionDesk(claude("other"))
    with pytest.raises(StageMustWait):
        other.admit()
    released = missions.release(mission_id=stuck.pk, reason="idle for six days", by=OPERATOR)
    assert (released.status, released.released_by) == ("failed", str(OPERATOR))
    assert other.admit().status == "open"
    refused_by(MissionRule.MISSION_ENDED, missions.dispatch, mission=stuck)
    refused_by(MissionRule.MISSION_ENDED, missions.close, mission=stuck, changed=[], by=SYSTEM)
    refused_by(MissionRule.MISSION_ENDED, missions.next_round, mission=stuck)


@pytest.mark.one_database
def test_what_a_released_mission_left_running_here_is_ended(desk: MissionDesk) -> None:
    """Another worker may begin in the same files at once."""
    mission = desk.worked()
    other = PipelineFactory()
    left, apart = (
        subprocess.Popen(["/bin/sleep", "60"], env={base.MARK: str(pipeline.pk)})
        for pipeline in (desk.pipeline, other)
    )
    try:
        missions.release(mission_id=mission.pk, reason="stuck", by=OPERATOR)
        assert left.wait(timeout=10) == -signal.SIGKILL
        assert apart.poll() is None
    finally:
        for child in (left, apart):
            child.kill()
            child.wait()


# --- Its worker -----------------------------------------------------------------------------------


@pytest.mark.one_database
def test_the_token_can_do_its_mission_and_nothing_else(desk: MissionDesk) -> None:
    other = MissionDesk(claude("other", project="api")).admit()
    mission, secret = missions.dispatch(mission=desk.admit())
    token = tokens.authenticate(secret)
    assert token.scopes == ["mission:work"]
    for act in (
        lambda: missions.show(mission_id=other.pk, token=token),
        lambda: missions.submit_result(
            mission_id=other.pk, document=desk.result(), by=Asker("token", token.prefix)
        ),
    ):
        with pytest.raises(Refused) as refused:
            act()
        assert refused.value.rule == Refusal.OTHER_HOLDER
    assert missions.show(mission_id=mission.pk, token=token)["round"] == 1


@pytest.mark.one_database
def test_a_run_ends_with_its_token_and_the_next_one_has_another(desk: MissionDesk) -> None:
    mission, first = missions.dispatch(mission=desk.admit())
    _, second = missions.dispatch(mission=mission)
    with pytest.raises(NotAuthenticated):
        tokens.authenticate(first)
    assert missions.end_run(mission=mission) == 1
    with pytest.raises(NotAuthenticated):
        tokens.authenticate(second)
    assert Mission.objects.get().status == "open"


@pytest.mark.one_database
def test_a_token_does_not_outlive_the_longest_run(desk: MissionDesk) -> None:
    mission, _ = missions.dispatch(mission=desk.admit())
    assert mission.token is not None and mission.token.expires_at is not None
    lives = mission.token.expires_at - mission.token.created_at
    assert lives.total_seconds() <= desk.spec.timeout + 301


@pytest.mark.one_database
def test_switching_an_identity_off_ends_its_workers(desk: MissionDesk) -> None:
    mission, worker = desk.dispatch()
    Identity.objects.update(is_active=False)
    with pytest.raises(NotAuthenticated):
        missions.submit_result(mission_id=mission.pk, document=desk.result(), by=worker)


@pytest.mark.one_database
@pytest.mark.parametrize("by", [OPERATOR, SYSTEM, Asker("identity", "x"), Asker("token", "cs_0")])
def test_nobody_but_the_worker_hands_in_its_result(desk: MissionDesk, by: Asker) -> None:
    mission, _ = desk.dispatch()
    refused_by(
        MissionRule.NOT_THE_WORKER,
        missions.submit_result,
        mission_id=mission.pk,
        document=desk.result(),
        by=by,
    )


@pytest.mark.one_database
def test_a_token_whose_scope_was_taken_away_reads_nothing(desk: MissionDesk) -> None:
    mission, _ = desk.dispatch()
    ApiToken.objects.update(scopes=["pipelines:read"])
    with pytest.raises(Refused) as refused:
        missions.show(mission_id=mission.pk, token=ApiToken.objects.get())
    assert refused.value.rule == Refusal.SCOPE_MISSING


def test_a_result_counts_once_and_does_not_change(desk: MissionDesk) -> None:
    mission, worker = desk.dispatch()
    hand_in = {"mission_id": mission.pk, "by": worker}
    first = missions.submit_result(document=desk.result(), **hand_in)
    assert missions.submit_result(document=desk.result(), **hand_in) == first
    with pytest.raises(AlreadyDecided):
        missions.submit_result(document=desk.result(confidence=0.1), **hand_in)
    assert MissionResult.objects.get().submitted_by == str(worker)
    assert MissionEvent.objects.filter(kind="result").count() == 1


@pytest.mark.one_database
def test_a_refused_result_leaves_nothing_and_a_right_one_follows(desk: MissionDesk) -> None:
    mission, worker = desk.dispatch()
    for wrong in ({"verdict": "maybe"}, {"round": 1}, {"files_changed": ["other"]}):
        with pytest.raises(ContractInvalid):
            missions.submit_result(mission_id=mission.pk, document=desk.result(**wrong), by=worker)
    assert not MissionResult.objects.exists()
    missions.submit_result(mission_id=mission.pk, document=desk.result(), by=worker)


@pytest.mark.one_database
def test_the_worker_reads_what_it_said_and_what_was_answered(desk: MissionDesk) -> None:
    mission = desk.worked(verdict="fail", reflection=REFLECTION)
    assert missions.next_round(mission=mission)
    mission, secret = missions.dispatch(mission=mission)
    shown = missions.show(mission_id=mission.pk, token=tokens.authenticate(secret))
    assert shown["round"] == 2
    assert [row["verdict"] for row in shown["results"]] == ["fail"]
    assert [row["recommendation"] for row in shown["reflections"]] == ["continue"]
    assert shown["answers"] == []

"""The gate: a mission closes with a result of its round that passes, and nobody can override it.

The second half says the same of the database: whoever writes, with whatever SQL.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from guards import documents
from guards.types import SYSTEM, Asker
from pipelines import registry
from pipelines.exceptions import GateRefused, MissionRefused
from pipelines.models import Command, Mission, MissionResult, Pipeline, Reflection
from pipelines.services import missions
from pipelines.services.missions import evaluation
from pipelines.snapshots import changes, snapshot
from pipelines.types import MissionRule
from tests.pipelines.factories import OPERATOR, MissionDesk, PipelineFactory, claude
from tests.pipelines.test_mission_documents import REFLECTION

pytestmark = pytest.mark.django_db


@pytest.fixture
def desk() -> MissionDesk:
    return MissionDesk()


def kept_open(mission: Mission, rule: MissionRule, **fields: Any) -> None:
    """Closing is refused by that rule, and the mission stays as it was."""
    with pytest.raises(GateRefused) as refused:
        missions.close(mission=mission, **{"changed": [], "by": SYSTEM, **fields})
    assert refused.value.rule == rule
    assert Mission.objects.get(pk=mission.pk).status == Mission.Status.OPEN


def test_a_result_that_passes_closes(desk: MissionDesk) -> None:
    mission = desk.worked()
    closed = missions.close(mission=mission, changed=["site", "site/deep/x"], by=SYSTEM)
    assert (closed.status, closed.closed_by) == ("closed", "system")
    assert missions.close(mission=mission, changed=["elsewhere"], by=SYSTEM).status == "closed"


@pytest.mark.one_database
def test_without_a_result_nothing_closes(desk: MissionDesk) -> None:
    kept_open(desk.admit(), MissionRule.NO_RESULT)


@pytest.mark.one_database
def test_a_result_that_did_not_pass_does_not_close(desk: MissionDesk) -> None:
    kept_open(desk.worked(verdict="fail"), MissionRule.VERDICT)


@pytest.mark.one_database
@pytest.mark.fault("sister-51")
def test_a_result_that_asks_for_a_person_escalates_and_is_never_called_closed(
    desk: MissionDesk,
) -> None:
    mission = desk.worked(verdict="escalate")
    ended = missions.close(mission=mission, changed=[], by=SYSTEM)
    assert ended.status == "escalated"
    assert missions.close(mission=mission, changed=[], by=SYSTEM).status == "escalated"
    assert MissionResult.objects.get().verdict == "escalate"


@pytest.mark.one_database
@pytest.mark.fault("W14", "sister-48", "sister-49")
@pytest.mark.parametrize(
    "path",
    ["notes.txt", "sit", "sites/a", ".git/hooks/pre-commit", "site/../x", "Site/a", "/etc", ""],
)
def test_a_change_outside_the_write_set_does_not_close_whatever_the_worker_says(
    desk: MissionDesk, path: str
) -> None:
    mission = desk.worked(files_changed=["site/index.html"])
    kept_open(mission, MissionRule.OUTSIDE_WRITE_SET, changed=["site/index.html", path])
    assert missions.close(mission=mission, changed=["site/other"], by=SYSTEM).status == "closed"


@pytest.mark.one_database
def test_the_parent_of_a_write_set_may_not_change(desk: MissionDesk) -> None:
    narrow = MissionDesk(claude("narrow", write_set=["site/en/news"]))
    mission = narrow.worked(files_changed=["site/en/news/1.html"])
    for path in ("site", "site/en", "site/en/new"):
        kept_open(mission, MissionRule.OUTSIDE_WRITE_SET, changed=[path])


@pytest.mark.one_database
@pytest.mark.fault("W14")
def test_what_really_changed_in_a_directory_decides(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "README").write_text("before")
    desk = MissionDesk(workplace=tmp_path)
    mission = desk.worked(files_changed=["site/new.html"])
    before = snapshot(tmp_path)
    (tmp_path / "site/new.html").write_text("new")
    good = changes(before, snapshot(tmp_path))
    (tmp_path / "README").write_text("behind its back")
    kept_open(mission, MissionRule.OUTSIDE_WRITE_SET, changed=changes(before, snapshot(tmp_path)))
    assert missions.close(mission=mission, changed=good, by=SYSTEM).status == "closed"


@pytest.mark.one_database
def test_what_another_pipeline_may_change_at_that_time_is_not_laid_to_this_one(
    desk: MissionDesk,
) -> None:
    """Two pipelines in one project see each other's changes; their write sets are apart."""
    mission = desk.worked()
    theirs = PipelineFactory(write_set=["web:docs", "api:src"], status="running")
    both = ["site/index.html", "docs/new.md"]
    kept_open(mission, MissionRule.OUTSIDE_WRITE_SET, changed=both)  # it has not begun
    Pipeline.objects.filter(pk=theirs.pk).update(started_at=timezone.now())
    for path in ("src/main.py", "doc", "docs/../README", "README"):
        kept_open(mission, MissionRule.OUTSIDE_WRITE_SET, changed=[*both, path])
    before = mission.opened_at - timedelta(minutes=1)
    Pipeline.objects.filter(pk=theirs.pk).update(finished_at=before)
    kept_open(mission, MissionRule.OUTSIDE_WRITE_SET, changed=both)
    Pipeline.objects.filter(pk=theirs.pk).update(finished_at=timezone.now())
    assert missions.close(mission=mission, changed=both, by=SYSTEM).status == "closed"


# --- Who judges, and by what ----------------------------------------------------------------------


@pytest.mark.one_database
@pytest.mark.parametrize("by", [OPERATOR, Asker("token", "cs_0"), Asker("identity", "system")])
def test_nobody_but_the_pinned_evaluator_closes(desk: MissionDesk, by: Asker) -> None:
    kept_open(desk.worked(), MissionRule.NOT_THE_EVALUATOR, by=by)


@pytest.mark.one_database
def test_the_worker_does_not_close_its_own_mission(desk: MissionDesk) -> None:
    mission, worker = desk.dispatch()
    missions.submit_result(mission_id=mission.pk, document=desk.result(), by=worker)
    kept_open(mission, MissionRule.NOT_THE_EVALUATOR, by=worker)


@pytest.mark.one_database
@pytest.mark.fault("W20")
def test_a_command_whose_document_changed_meanwhile_does_not_close(desk: MissionDesk) -> None:
    mission = desk.worked()
    changed = claude(serial=2, write_set=["site", "etc"])
    Command.objects.update(document=changed, digest=documents.digest(changed))
    kept_open(mission, MissionRule.COMMAND_CHANGED)
    Command.objects.update(document=changed, digest=mission.digest)  # an edit that hides itself
    kept_open(mission, MissionRule.COMMAND_CHANGED)
    Command.objects.all().delete()
    kept_open(mission, MissionRule.COMMAND_CHANGED)


@pytest.mark.one_database
def test_checks_that_changed_meanwhile_do_not_judge(
    desk: MissionDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    mission = desk.worked()
    monkeypatch.setattr(evaluation, "CHECKS_VERSION", "gate/2")
    kept_open(mission, MissionRule.EVALUATOR_CHANGED)
    monkeypatch.undo()
    assert missions.close(mission=mission, changed=[], by=SYSTEM).status == "closed"


def test_the_checks_that_are_pinned_are_the_gates_own() -> None:
    """Whoever changes what the gate checks gives it a new version, and its digest here."""
    pinned = evaluation.checks_digest(command="c", digest="d", criteria={})
    assert pinned == "08fa4e2c180fa67c014533dc348656c871837ceb94e7d3e851ea4d442db21c0a"


@pytest.mark.one_database
def test_a_built_in_command_has_no_document_that_could_change(desk: MissionDesk) -> None:
    assert registry.built_in("publish") is None
    assert evaluation.present_digest("publish") == desk.stage.digest
    assert evaluation.present_digest("nowhere") is None


@pytest.mark.one_database
def test_a_contract_that_was_changed_in_the_database_is_not_judged(desk: MissionDesk) -> None:
    mission = desk.worked()
    with lifted("cs_pipelines_mission_keeps_on_update"):
        Mission.objects.update(contract={**mission.contract, "write_set": ["site", "etc"]})
    with pytest.raises(MissionRefused) as refused:
        missions.close(mission=mission, changed=["etc/passwd"], by=SYSTEM)
    assert refused.value.rule == MissionRule.CONTRACT_CHANGED


class lifted:
    """Without one trigger: what somebody who owns the database could do."""

    def __init__(self, name: str) -> None:
        on = ' ON "pipelines_mission"' if connection.vendor == "postgresql" else ""
        self.drop = f'DROP TRIGGER "{name}"{on}'

    def __enter__(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(self.drop)

    def __exit__(self, *_: object) -> None:
        from guards import triggers

        triggers.install("pipelines")


# --- The database itself --------------------------------------------------------------------------


def refused_by_database(act: Callable[[], object]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        act()


def close_by_sql(**also: Any) -> int:
    return Mission.objects.update(status="closed", closed_at=timezone.now(), **also)


def test_no_sql_closes_a_mission_without_a_result_that_passed(desk: MissionDesk) -> None:
    mission, worker = desk.dispatch()
    refused_by_database(close_by_sql)
    missions.submit_result(mission_id=mission.pk, document=desk.result(verdict="fail"), by=worker)
    refused_by_database(close_by_sql)
    missions.next_round(mission=mission)
    refused_by_database(close_by_sql)
    missions.dispatch(mission=mission)
    token = Mission.objects.get().token
    assert token is not None
    missions.submit_result(
        mission_id=mission.pk, document=desk.result(), by=Asker("token", token.prefix)
    )
    refused_by_database(lambda: close_by_sql(released_at=timezone.now()))
    assert close_by_sql() == 1


@pytest.mark.fault("sister-51")
def test_no_sql_closes_a_mission_that_asks_for_a_person(desk: MissionDesk) -> None:
    desk.worked(verdict="escalate")
    refused_by_database(close_by_sql)


def test_no_sql_makes_a_closed_mission_out_of_nothing(desk: MissionDesk) -> None:
    mission = desk.worked()
    row = {field.attname: getattr(mission, field.attname) for field in Mission._meta.fields}
    row |= {"id": desk.pipeline.pk, "attempt": 7, "status": "closed", "closed_at": timezone.now()}
    refused_by_database(lambda: Mission.objects.create(**row))
    row |= {"status": "open", "closed_at": None, "worker": mission.evaluator}
    refused_by_database(lambda: Mission.objects.create(**row))
    row |= {"worker": "claude"}
    assert Mission.objects.create(**row)


@pytest.mark.parametrize("status", ["open", "closed", "failed"])
def test_what_has_ended_stays_as_it_ended(desk: MissionDesk, status: str) -> None:
    mission = desk.worked()
    missions.escalate(mission=mission, reason="look")
    refused_by_database(lambda: Mission.objects.update(status=status))


@pytest.mark.parametrize(
    "change",
    [
        {"dispatched_at": None},
        {"usd": 0.1},
        {"turns": 1},
        {"round": 3},
        {"rounds": 5},
        {"max_usd": 1000},
        {"write_set": []},
        {"contract": {}},
        {"evaluator": "claude"},
        {"evaluator_digest": "0" * 64},
    ],
)
def test_what_a_mission_is_and_was_cannot_be_rewritten(
    desk: MissionDesk, change: dict[str, Any]
) -> None:
    mission = desk.worked(verdict="fail")
    missions.record_cost(mission=mission, usd=0.5, turns=2)
    refused_by_database(lambda: Mission.objects.update(**change))


def test_a_round_cannot_be_skipped_in_the_database(desk: MissionDesk) -> None:
    mission, worker = desk.dispatch()
    refused_by_database(lambda: Mission.objects.update(round=2))
    missions.submit_result(mission_id=mission.pk, document=desk.result(verdict="fail"), by=worker)
    assert Mission.objects.update(round=2) == 1
    refused_by_database(lambda: Mission.objects.update(round=1))


def test_results_are_neither_written_late_nor_rewritten(desk: MissionDesk) -> None:
    mission = desk.worked(reflection=REFLECTION)
    refused_by_database(lambda: MissionResult.objects.update(verdict="fail"))
    refused_by_database(lambda: Reflection.objects.all().delete())
    row = {"mission": mission, "verdict": "pass", "confidence": 1, "prose": "x"}
    refused_by_database(lambda: MissionResult.objects.create(round=2, **row))
    missions.fail(mission=mission, reason="x")
    refused_by_database(lambda: MissionResult.objects.create(round=1, **row))
    undispatched = MissionDesk(claude("other")).admit()
    refused_by_database(
        lambda: MissionResult.objects.create(round=1, **{**row, "mission": undispatched})
    )


def test_an_abandoned_mission_never_began(desk: MissionDesk) -> None:
    desk.dispatch()
    refused_by_database(
        lambda: Mission.objects.update(status="abandoned", closed_at=timezone.now())
    )


def test_a_released_write_set_stays_released(desk: MissionDesk) -> None:
    missions.release(mission_id=desk.worked().pk, reason="stuck", by=OPERATOR)
    refused_by_database(lambda: Mission.objects.update(released_at=None))

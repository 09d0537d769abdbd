"""The gate: a mission closes with a result of its round that passes the checks, or not at all.

Nobody can override it: not an operator, not a setting. The database holds the core of it, too.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import Q

from guards.services.units import unit_of_work
from guards.types import Asker
from pipelines import mission_documents, write_sets
from pipelines.exceptions import GateRefused
from pipelines.mission_documents import Contract, Verdict, is_plain
from pipelines.models import Mission, MissionResult, Pipeline
from pipelines.services.missions import ending, evaluation, record
from pipelines.types import MissionRule

#: How many paths a refusal names.
_SHOWN = 5


def close(*, mission: Mission, changed: Iterable[str], by: Asker) -> Mission:
    """Close a mission whose round passed; `changed` are the paths that really changed.

    They are relative to the workplace, as `pipelines.snapshots` saw them. A result that asks for a
    person ends the mission as escalated, never closed. GateRefused names the rule; the mission then
    stays open, for another round or its failure. One that is closed already is given back.
    """
    paths = sorted(set(changed))
    with unit_of_work():
        held = record.held(mission.pk)
        if held.status in {Mission.Status.CLOSED, Mission.Status.ESCALATED}:
            return held
        record.require_open(held)
        contract = record.contract_of(held)
        _check_evaluator(held, contract, by)
        result = _result(held)
        if result.verdict == Verdict.ESCALATE:
            reason = "its worker asks for a person"
            return ending.end(held, Mission.Status.ESCALATED, reason=reason, by=by)
        if result.verdict != Verdict.PASS:
            raise _refusal(MissionRule.VERDICT, f"the result of round {held.round} did not pass")
        _check_changes(held, contract, result, paths)
        return ending.end(held, Mission.Status.CLOSED, reason="", by=by)


def _check_evaluator(mission: Mission, contract: Contract, by: Asker) -> None:
    """The pinned evaluator judges, by the pinned checks, and is not whom it judges."""
    if str(by) != mission.evaluator:
        raise _refusal(
            MissionRule.NOT_THE_EVALUATOR, f"{mission.evaluator} judges this mission, not {by}"
        )
    if mission.worker.strip().lower() == mission.evaluator.strip().lower():
        raise _refusal(MissionRule.EVALUATOR_IS_WORKER, "its worker cannot judge it")
    if evaluation.present_digest(mission.command) != mission.digest:
        raise _refusal(
            MissionRule.COMMAND_CHANGED, f"{mission.command} was changed since the mission opened"
        )
    now = evaluation.checks_digest(
        command=mission.command,
        digest=mission.digest,
        criteria=mission_documents.criteria(contract.success),
    )
    if now != mission.evaluator_digest:
        raise _refusal(
            MissionRule.EVALUATOR_CHANGED, "the checks are not those that were pinned at its start"
        )


def _result(mission: Mission) -> MissionResult:
    found = record.result_of(mission)
    if found is None:
        raise _refusal(MissionRule.NO_RESULT, f"round {mission.round} has no result")
    return found


def _check_changes(
    mission: Mission, contract: Contract, result: MissionResult, paths: list[str]
) -> None:
    outside = [path for path in paths if not contract.permits(path, result.files)]
    if outside and contract.project:
        outside = _laid_to_nobody_else(mission, contract.project, outside)
    if outside:
        more = f" and {len(outside) - _SHOWN} more" if len(outside) > _SHOWN else ""
        shown = ", ".join(ascii(path)[:200] for path in outside[:_SHOWN])
        raise _refusal(
            MissionRule.OUTSIDE_WRITE_SET, f"changed outside the write set: {shown}{more}"
        )


def _laid_to_nobody_else(mission: Mission, project: str, paths: list[str]) -> list[str]:
    """Without what another pipeline of that time may change, by its own signed write sets.

    Two pipelines work in one project at once only where their write sets are apart, and both see
    what the other one does.
    """
    since = mission.dispatched_at or mission.opened_at
    others = (
        Pipeline.objects.exclude(pk=mission.pipeline_id)
        .filter(started_at__isnull=False)
        .filter(Q(finished_at=None) | Q(finished_at__gte=since))
    )
    sets = [entry for paths in others.values_list("write_set", flat=True) for entry in paths]
    return [
        path
        for path in paths
        if not is_plain(path)
        or not any(write_sets.covers(entry, f"{project}:{path}") for entry in sets)
    ]


def _refusal(rule: MissionRule, detail: str) -> GateRefused:
    return GateRefused(detail, rule=rule.value)

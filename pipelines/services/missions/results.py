"""What a run of a mission brings in: its result, its cost, and whether another round follows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.utils import timezone

from guards.exceptions import AlreadyDecided, InvalidInput
from guards.models import ApiToken
from guards.services import tokens
from guards.services.units import unit_of_work
from guards.types import SYSTEM, Asker
from pipelines import mission_documents
from pipelines.mission_documents import Recommendation, ReflectionDocument, ResultDocument, Verdict
from pipelines.models import Mission, MissionEvent, MissionResult, Reflection
from pipelines.services import rows
from pipelines.services.missions import budgets, dispatching, record
from pipelines.types import MissionRule

#: Looks back after which nobody begins another round.
_HALTS = frozenset({Recommendation.STOP, Recommendation.ESCALATE})


def submit_result(*, mission_id: UUID, document: Mapping[str, Any], by: Asker) -> MissionResult:
    """Take in a worker's result for the round that runs, once; the same one again changes nothing.

    ContractInvalid names the place and the rule of what is not exactly as it must be.
    MissionRefused by `not-the-worker` for anybody but the mission's own token, `not-dispatched`,
    `mission-ended`; AlreadyDecided for another result of the same round. Its look back is recorded
    unless the round has one.
    """
    with unit_of_work():
        _require_worker(by, mission_id)
        mission = record.held_open(mission_id)
        if mission.dispatched_at is None:
            raise record.refusal(MissionRule.NOT_DISPATCHED, f"no worker was started for {mission}")
        result = mission_documents.read_result(document, record.contract_of(mission))
        standing = record.result_of(mission)
        if standing is not None:
            return _same(standing, result)
        return _record(mission, result, by)


def _require_worker(by: Asker, mission_id: UUID) -> None:
    found = rows.find(ApiToken, where={"prefix": by.name}) if by.kind == "token" else []
    if not found:
        raise record.refusal(
            MissionRule.NOT_THE_WORKER, f"only the mission's worker hands in its result, not {by}"
        )
    dispatching.require_own(found[0], mission_id)


def _record(mission: Mission, result: ResultDocument, by: Asker) -> MissionResult:
    row = MissionResult(
        mission=mission,
        round=mission.round,
        submitted_at=timezone.now(),
        submitted_by=str(by),
        **_columns(result),
    )
    rows.insert(row)
    facts = {
        "verdict": result.verdict.value,
        "confidence": result.confidence,
        "files_changed": len(result.files_changed),
        "open_questions": len(result.open_questions),
    }
    record.note(mission, "result", actor=str(by), facts=facts)
    _reflect_once(mission, result.reflection, str(by))
    return row


def _columns(result: ResultDocument) -> dict[str, Any]:
    return {
        "verdict": result.verdict.value,
        "confidence": result.confidence,
        "prose": result.prose,
        "output": result.output,
        "files": list(result.files),
        "files_changed": list(result.files_changed),
        "open_questions": list(result.open_questions),
    }


def _same(standing: MissionResult, result: ResultDocument) -> MissionResult:
    """A worker may ask again when it missed the answer; it may not change what it said."""
    if any(getattr(standing, name) != value for name, value in _columns(result).items()):
        raise AlreadyDecided(f"round {standing.round} has its result, and results do not change")
    return standing


def _reflect_once(mission: Mission, reflection: ReflectionDocument | None, by: str) -> None:
    """Record a look back at the round, if there is one and the round has none yet."""
    if reflection is None or mission.reflections.filter(round=mission.round).exists():
        return
    Reflection.objects.create(
        mission=mission,
        round=mission.round,
        converging=reflection.converging,
        signals=list(reflection.signals),
        recommendation=reflection.recommendation.value,
        reason=reflection.reason,
        created_at=timezone.now(),
        created_by=by,
    )
    facts = {
        "recommendation": reflection.recommendation.value,
        "converging": reflection.converging,
    }
    record.note(mission, "reflected", actor=by, facts=facts)


def record_cost(
    *,
    mission: Mission,
    usd: float,
    turns: int,
    tokens: Mapping[str, int] | None = None,
    is_known: bool = True,
) -> Mission:
    """Add what one run cost, however it ended; also to a mission that has ended meanwhile.

    A run that is not followed by this, or by one that is not known, counts with all that it may
    have cost. `tokens` are those that we have counted ourselves. InvalidInput for a figure that is
    no amount.
    """
    if not math.isfinite(usd) or usd < 0 or turns < 0:
        raise InvalidInput(f"a run cannot cost {usd} USD in {turns} turns", field="usd")
    with unit_of_work():
        held = record.held(mission.pk)
        amount = budgets.dollars(usd)
        record.move(held, usd=held.usd + amount, turns=held.turns + turns)
        facts = {"usd": f"{amount:f}", "turns": turns, "tokens": dict(tokens or {})}
        kind = budgets.COST if is_known else budgets.COST_UNKNOWN
        record.note(held, kind, actor=str(SYSTEM), facts=facts)
    return held


def counted_tokens(*, mission: Mission) -> dict[str, int]:
    """The tokens of all its runs so far, as we have counted them, by their kind."""
    kinds = [budgets.COST, budgets.COST_UNKNOWN]
    told = MissionEvent.objects.filter(mission_id=mission.pk, kind__in=kinds)
    counted: Counter[str] = Counter()
    for facts in told.values_list("facts", flat=True):
        counted.update(facts.get("tokens", {}))
    return dict(counted)


def next_round(*, mission: Mission, reflection: Mapping[str, Any] | None = None) -> bool:
    """Begin another round, if one may follow; False when the mission has to end as it is.

    MissionRefused by `no-result` while this round has neither a result nor a look back. No round
    follows the last one, a spent budget, a result that asks for a person, or a look back that
    advises to stop. `reflection` is recorded unless this round has one.
    """
    looked_back = None if reflection is None else mission_documents.read_reflection(reflection)
    with unit_of_work():
        held = record.held_open(mission.pk)
        _reflect_once(held, looked_back, str(SYSTEM))
        if not _may_follow(held):
            return False
        tokens.revoke_for(holder=record.subject(held.pk))
        record.move(held, round=held.round + 1)
        record.note(held, "round", actor=str(SYSTEM))
    return True


def _may_follow(mission: Mission) -> bool:
    result = record.result_of(mission)
    look = mission.reflections.filter(round=mission.round).first()
    if result is None and look is None:
        raise record.refusal(
            MissionRule.NO_RESULT, f"round {mission.round} has neither a result nor a look back"
        )
    if result is not None and result.verdict == Verdict.ESCALATE:
        return False
    if look is not None and look.recommendation in _HALTS:
        return False
    return mission.round < mission.rounds and record.remaining_usd(mission) > 0

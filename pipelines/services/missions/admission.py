"""Opening a mission: its contract, its day's budget and its write set, checked in one transaction.

All of it happens under the executor's turn, so that of two workers at once one opens its mission
and the other sees it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from django.utils import timezone

from guards.services.units import unit_of_work
from guards.types import SYSTEM
from pipelines import decoding, mission_documents, write_sets
from pipelines.exceptions import ClaimLost, StageMustWait
from pipelines.mission_documents import Contract, Kind, Success
from pipelines.models import ExecutorTurn, Mission, Pipeline, Stage
from pipelines.services import rows
from pipelines.services.missions import budgets, ending, evaluation, record
from pipelines.types import CommandSpec, Job, MissionRule

#: What a contract takes from the signed command.
_SIGNED = ("kind", "command", "digest", "task", "project", "write_set", "budget", "success")


def admit(*, job: Job, pipeline: Pipeline, worker: str, kind: str = "command") -> Mission:
    """Open the mission of a claimed stage, or give back the open one that it goes on with.

    StageMustWait while an open mission may still change the same files; ClaimLost for a stage that
    is no longer claimed; MissionRefused by `daily-budget`, `no-budget`, `evaluator-is-worker`,
    `mission-ended` (this attempt had its mission) or `contract-changed` (a row written past us).
    """
    contract = _contract(job, ticket=str(pipeline), worker=worker, kind=Kind(kind))
    document = mission_documents.write_contract(contract)
    mission_documents.read_contract(document)
    with unit_of_work():
        ExecutorTurn.take()
        stage = _held_stage(job, pipeline)
        scoped = write_sets.scoped(contract.project, contract.write_set)
        standing = _standing(stage, job.attempt)
        if standing is not None:
            _require_signed(standing, document, scoped)
            return standing
        if worker.strip().lower() == evaluation.EVALUATOR.lower():
            raise record.refusal(
                MissionRule.EVALUATOR_IS_WORKER, f"{worker} judges this mission and cannot do it"
            )
        _check_write_set(scoped)
        max_usd = budgets.dollars(contract.budget.max_usd)
        budgets.check(pipeline=pipeline, command=contract.command, max_usd=max_usd)
        return _open(contract, document, stage, pipeline, scoped)


def contract_preview(
    *, spec: CommandSpec, args: Mapping[str, Any], kind: str = "command"
) -> dict[str, Any]:
    """The contract that a call would have, without what only a run knows: opens nothing."""
    document = mission_documents.write_contract(
        _contract(Job(spec, args, b"{}", ""), ticket="", worker="", kind=Kind(kind))
    )
    inputs = {"args": document["inputs"]["args"]}
    hidden = {"id", "ticket", "attempt", "directory", "workplace", "worker"}
    shown = {name: value for name, value in document.items() if name not in hidden}
    return {**shown, "inputs": inputs}


def _contract(job: Job, *, ticket: str, worker: str, kind: Kind) -> Contract:
    spec = job.spec
    if spec.budget is None:
        raise record.refusal(MissionRule.NO_BUDGET, f"{spec.name} declares no budget")
    success = Success(mission_documents.exact(spec.output_schema), spec.mode, spec.files)
    digest = evaluation.signed_digest(spec)
    return Contract(
        id=str(uuid.uuid4()),
        ticket=ticket,
        kind=kind,
        attempt=job.attempt,
        command=spec.name,
        digest=digest,
        task=spec.prompt,
        args=mission_documents.exact(dict(job.args)),
        pipeline_output=mission_documents.exact(decoding.parse(job.pipe)),
        directory=str(job.directory or ""),
        workplace=str(job.workplace or job.directory or ""),
        project=spec.project,
        write_set=tuple(spec.write_set),
        budget=spec.budget,
        timeout=spec.timeout,
        success=success,
        worker=worker,
        evaluator=evaluation.EVALUATOR,
        evaluator_digest=evaluation.checks_digest(
            command=spec.name, digest=digest, criteria=mission_documents.criteria(success)
        ),
    )


def _held_stage(job: Job, pipeline: Pipeline) -> Stage:
    """The stage's row, kept from whoever would cancel it until the mission is on record."""
    where = {"pk": job.stage, "pipeline_id": pipeline.pk, "status": Stage.HELD}
    found = rows.find(Stage, where=where, keep=True)
    if not found:
        raise ClaimLost(f"the stage of {pipeline} is not claimed any more")
    return found[0]


def _standing(stage: Stage, attempt: int) -> Mission | None:
    """The mission that this attempt goes on with: after an answer, or when asked a second time.

    An attempt has one mission, ever. What an earlier one left open ends here.
    """
    of_stage = rows.find(Mission, where={"stage_id": stage.pk})
    for mission in of_stage:
        if mission.status == Mission.Status.OPEN and mission.attempt != attempt:
            ending.fail(mission=mission, reason="another attempt of its stage began")
    mine = next((mission for mission in of_stage if mission.attempt == attempt), None)
    if mine is None or (mine.status == Mission.Status.OPEN and mine.released_at is None):
        return mine
    raise record.refusal(
        MissionRule.MISSION_ENDED,
        f"the mission of this attempt has ended ({mine.status}): {mine.reason}",
    )


def _require_signed(mission: Mission, document: Mapping[str, Any], scoped: list[str]) -> None:
    """MissionRefused unless an open mission says what the signed command says now.

    Its arguments and its pipe are as safe as the database; what the owner signed is safer.
    """
    kept, limits = mission.contract, document["budget"]
    same = isinstance(kept, Mapping) and all(kept.get(name) == document[name] for name in _SIGNED)
    columns = (mission.write_set, mission.rounds, mission.max_usd)
    wanted = (scoped, limits["rounds"], budgets.dollars(limits["max_usd"]))
    if not same or columns != wanted:
        raise record.refusal(
            MissionRule.CONTRACT_CHANGED, f"{mission} does not say what its command's owner signed"
        )


def _check_write_set(scoped: list[str]) -> None:
    others = rows.find(Mission, where={"status": Mission.Status.OPEN}, order_by="opened_at")
    for mission in others:
        if mission.released_at is None and write_sets.overlap(scoped, mission.write_set):
            raise StageMustWait(
                f"{mission} ({mission.command}, open since {mission.opened_at:%F %R} UTC) may "
                "still change the same files"
            )


def _open(
    contract: Contract,
    document: dict[str, Any],
    stage: Stage,
    pipeline: Pipeline,
    scoped: list[str],
) -> Mission:
    mission = Mission(
        id=uuid.UUID(contract.id),
        pipeline=pipeline,
        stage=stage,
        attempt=contract.attempt,
        command=contract.command,
        digest=contract.digest,
        contract=document,
        contract_sha256=mission_documents.digest(document),
        write_set=scoped,
        rounds=contract.budget.rounds,
        max_usd=budgets.dollars(contract.budget.max_usd),
        worker=contract.worker,
        evaluator=contract.evaluator,
        evaluator_digest=contract.evaluator_digest,
        opened_at=timezone.now(),
    )
    rows.insert(mission)
    facts = {"rounds": mission.rounds, "max_usd": str(mission.max_usd), "kind": contract.kind.value}
    record.note(mission, "opened", actor=str(SYSTEM), facts=facts)
    return mission

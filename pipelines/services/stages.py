"""What a stage's row goes through under a claim: claimed, started, ended, or put back.

Each function is one transaction with one event for each row that moves, and each names the claim:
ClaimLost rolls it back where somebody else holds the pipeline by now.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.utils import timezone

from guards.services.units import unit_of_work
from pipelines.models import Pipeline, Stage
from pipelines.services import claims, missions, transitions
from pipelines.services.claims import Claim
from pipelines.services.intake import REPLY
from pipelines.services.rows import Answer, Message
from pipelines.types import RunResult

#: How much of an output and of an error a stage's row keeps, in characters.
OUTPUT_SHOWN = 20_000
ERROR_SHOWN = 2_000


@dataclass(frozen=True, slots=True)
class Success:
    """How a stage ended well, and the pipe for its pipeline's row (None: it stays as it is)."""

    stage: Stage
    result: RunResult
    pipe: Mapping[str, Any] | None
    at: datetime = field(default_factory=timezone.now)


def attempt_of(stage: Stage) -> int:
    """Which run of the stage the next one is: one that only waited goes on with the same."""
    return stage.attempt if stage.started_at else stage.attempt + 1


def claim(held: Claim, stage: Stage, *, filled: Mapping[str, Any] | None = None) -> None:
    """Take the stage: after it no other worker prepares or runs it.

    `filled` is what `files.prepare` has for the pipeline's row, where that is not on record yet.
    """
    until = claims.lease_end()
    with unit_of_work():
        message = Message()
        kept = _ask_to_keep(
            message, held, current=stage.position, lease_until=until, **(filled or {})
        )
        moved = transitions.ask_stage(
            message,
            stage,
            Stage.Status.CLAIMED,
            old=[Stage.Status.PENDING],
            changes={**held.mine, "attempt": attempt_of(stage), "lease_until": until},
        )
        message.send(last=True)
        _must_both(kept, moved, held, stage)
        transitions.note_stage(stage, [Stage.Status.CLAIMED], {"attempt": attempt_of(stage)})


def start(held: Claim, stage: Stage, vectors: list[list[str]]) -> None:
    """Its process is about to run: after this it never runs again by itself."""
    until = claims.lease_end()
    with unit_of_work():
        message = Message()
        kept = _ask_to_keep(message, held, lease_until=until)
        moved = transitions.ask_stage(
            message,
            stage,
            Stage.Status.RUNNING,
            old=[Stage.Status.CLAIMED],
            where=held.mine,
            changes=_starting(stage, until, vectors),
        )
        message.send(last=True)
        _must_both(kept, moved, held, stage)
        transitions.note_stage(stage, [Stage.Status.RUNNING], {"attempt": attempt_of(stage)})


def claim_and_start(
    held: Claim,
    stage: Stage,
    vectors: list[list[str]],
    *,
    after: Success | None = None,
    filled: Mapping[str, Any] | None = None,
) -> None:
    """Both in one transaction, where nothing has to be prepared between them.

    `after` is the end of the stage before, and `filled` what `files.prepare` has for the pipeline's
    row, where those are not on record yet.
    """
    until = claims.lease_end()
    with unit_of_work():
        message = Message()
        changes = {**(filled or {}), **_new_pipe(after)}
        kept = _ask_to_keep(message, held, current=stage.position, lease_until=until, **changes)
        ended = None if after is None else ask_success(message, held, after)
        started = ask_start(message, held, stage, vectors, until=until)
        message.send(last=True)
        _must_keep(kept, held)
        if after is not None and ended is not None:
            note_success(after, ended)
        note_start(stage, started)


def ask_start(
    message: Message,
    held: Claim,
    stage: Stage,
    vectors: list[list[str]],
    *,
    until: datetime,
    where: Mapping[str, Any] | None = None,
) -> Answer[bool]:
    """The stage's own claim and start, in one UPDATE, after the pipeline's row in a message."""
    return transitions.ask_stage(
        message,
        stage,
        Stage.Status.RUNNING,
        old=[Stage.Status.PENDING],
        where=where,
        changes=at_its_start(held, stage, vectors, until=until),
    )


def note_start(stage: Stage, started: Answer[bool]) -> None:
    """Its two events; ClaimLost where it did not move."""
    _must(started.value, stage)
    note_started(stage)


def note_started(stage: Stage) -> None:
    """It passes `claimed` in the moment in which it starts: two moves on record."""
    passed = (Stage.Status.CLAIMED, Stage.Status.RUNNING)
    transitions.note_stage(stage, passed, {"attempt": attempt_of(stage)})


def at_its_start(
    held: Claim, stage: Stage, vectors: list[list[str]], *, until: datetime
) -> dict[str, Any]:
    """What a stage's own claim and start change in its row."""
    return {**held.mine, "attempt": attempt_of(stage), **_starting(stage, until, vectors)}


def _starting(stage: Stage, until: datetime, vectors: list[list[str]]) -> dict[str, Any]:
    """Whose leases end together have begun together: their rows change alike."""
    return {
        "lease_until": until,
        "started_at": stage.started_at or until - claims.LEASE,
        "argv": vectors,
    }


def put_back(held: Claim, stage: Stage, *, reason: str) -> None:
    """It cannot begin just now: the stage is due again, and its pipeline back in the queue."""
    with unit_of_work():
        _give_pipeline_back(held, Pipeline.Status.QUEUED, reason)
        moved = transitions.move_stage(
            stage,
            Stage.Status.PENDING,
            old=[Stage.Status.CLAIMED],
            where=held.mine,
            changes={"attempt": stage.attempt, "claimed_by": "", "lease_until": None},
            facts={"reason": reason},
        )
        _must(moved, stage)


def wait(held: Claim, stage: Stage, result: RunResult) -> None:
    """Only a person can let it go on: no worker is held for it."""
    with unit_of_work():
        _give_pipeline_back(held, Pipeline.Status.WAITING_APPROVAL, stage.command)
        moved = transitions.move_stage(
            stage,
            Stage.Status.WAITING_APPROVAL,
            old=[Stage.Status.RUNNING],
            where=held.mine,
            changes={
                "claimed_by": "",
                "lease_until": None,
                "stderr": result.stderr,
                "usage": _usage(stage, result),
            },
        )
        _must(moved, stage)


def succeed(held: Claim, success: Success, adopt: Callable[[], None] | None = None) -> None:
    """Its end, the new pipe, and what a built-in command makes of its output."""
    with unit_of_work():
        message = Message()
        kept = _ask_to_keep(message, held, lease_until=claims.lease_end(), **_new_pipe(success))
        ended = ask_success(message, held, success)
        message.send(last=adopt is None)
        _must_keep(kept, held)
        note_success(success, ended)
        if adopt is not None:
            adopt()


def _new_pipe(success: Success | None) -> dict[str, Any]:
    return {} if success is None or success.pipe is None else {"pipe": success.pipe}


def ask_success(message: Message, held: Claim, success: Success) -> Answer[bool]:
    """The stage's own end, after the pipeline's row in a message."""
    return transitions.ask_stage(
        message,
        success.stage,
        Stage.Status.SUCCEEDED,
        old=[Stage.Status.RUNNING],
        where=held.mine,
        changes=at_its_end(success),
    )


def note_success(success: Success, ended: Answer[bool]) -> None:
    """Its event; ClaimLost where it did not move."""
    _must(ended.value, success.stage)
    facts = facts_of(success.result)
    transitions.note_stage(success.stage, [Stage.Status.SUCCEEDED], facts)


def at_its_end(success: Success) -> dict[str, Any]:
    """What a stage's success changes in its row."""
    return {**_ended(success.stage, success.result, ""), "finished_at": success.at}


def facts_of(result: RunResult) -> dict[str, object]:
    """What the event of a success says of it."""
    return {"exit_code": result.exit_code, "bytes": len(result.output)}


def fail(
    held: Claim,
    stage: Stage,
    error: str,
    *,
    old: Stage.Status,
    result: RunResult | None = None,
) -> None:
    """It failed, the ones after it never run, and only the reply is left."""
    incomplete = result is not None and result.incomplete
    ended = {"finished_at": timezone.now(), "lease_until": None, "error": error[:ERROR_SHOWN]}
    with unit_of_work():
        keep(
            held,
            failing=True,
            error=f"{stage.command}: {error}"[:ERROR_SHOWN],
            current=stage.position,
            lease_until=claims.lease_end(),
        )
        moved = transitions.move_stage(
            stage,
            Stage.Status.INCOMPLETE if incomplete else Stage.Status.FAILED,
            old=[old],
            where=held.mine if old in Stage.HELD else None,
            changes=ended if result is None else _ended(stage, result, error),
            facts={"reason": error[:300]},
        )
        _must(moved, stage)
        if stage.runner != "cli":
            missions.end_for_stage(stage_id=stage.pk, status="failed", reason=error)
        cancel_pending(stage.pipeline_id, reason="an earlier stage failed")


def cancel_pending(pipeline_id: UUID, *, reason: str) -> None:
    """The work stages that will not run any more; the reply stays due."""
    pending = Stage.objects.filter(pipeline_id=pipeline_id, status=Stage.Status.PENDING)
    for stage in pending.exclude(command=REPLY):
        transitions.move_stage(
            stage,
            Stage.Status.CANCELLED,
            old=[Stage.Status.PENDING],
            changes={"finished_at": timezone.now()},
            facts={"reason": reason},
        )


def pending(pipeline_id: UUID) -> tuple[list[Stage], Stage | None]:
    """The work stages that are still due, in their order; and the reply, where it is due too."""
    return pending_of([pipeline_id])[pipeline_id]


def pending_of(pipeline_ids: Collection[UUID]) -> dict[UUID, tuple[list[Stage], Stage | None]]:
    """The same for several pipelines."""
    message = Message()
    found = ask_pending(message, pipeline_ids)
    message.send()
    return pending_in(found.value, pipeline_ids)


def ask_pending(message: Message, pipeline_ids: Collection[UUID]) -> Answer[list[Stage]]:
    """The stages of those pipelines that are still due, for `pending_in`."""
    where = {"pipeline_id": pipeline_ids, "status": Stage.Status.PENDING}
    return message.find(Stage, where=where, order_by="position")


def pending_in(
    found: Iterable[Stage], pipeline_ids: Collection[UUID]
) -> dict[UUID, tuple[list[Stage], Stage | None]]:
    """Work and reply of each of those pipelines, as `pending`."""
    work: dict[UUID, list[Stage]] = {pk: [] for pk in pipeline_ids}
    replies: dict[UUID, Stage] = {}
    for stage in found:
        if stage.command == REPLY:
            replies[stage.pipeline_id] = stage
        else:
            work[stage.pipeline_id].append(stage)
    return {pk: (work[pk], replies.get(pk)) for pk in pipeline_ids}


def keep(held: Claim, **changes: Any) -> None:
    """Write into the pipeline's row under the claim; ClaimLost when it is gone."""
    message = Message()
    kept = _ask_to_keep(message, held, **changes)
    message.send()
    _must_keep(kept, held)


def _ask_to_keep(message: Message, held: Claim, **changes: Any) -> Answer[bool]:
    where = {"pk": held.pipeline_id, "status": Pipeline.Status.RUNNING, **held.mine}
    return message.update(Pipeline, where=where, changes=changes)


def _must_keep(kept: Answer[bool], held: Claim) -> None:
    transitions.must(kept.value, f"pipeline {held.pipeline_id}")


def _must_both(kept: Answer[bool], moved: Answer[bool], held: Claim, stage: Stage) -> None:
    _must_keep(kept, held)
    _must(moved.value, stage)


def _give_pipeline_back(held: Claim, status: Pipeline.Status, reason: str) -> None:
    moved = transitions.move_pipeline(
        held.pipeline_id,
        status,
        old=[Pipeline.Status.RUNNING],
        where=held.mine,
        changes={"claimed_by": "", "lease_until": None},
        facts={"reason": reason},
    )
    transitions.must(moved, f"pipeline {held.pipeline_id}")


def _must(moved: bool, stage: Stage) -> None:
    transitions.must(moved, f"stage {stage.position} of pipeline {stage.pipeline_id}")


def _ended(stage: Stage, result: RunResult, error: str) -> dict[str, Any]:
    return {
        "finished_at": timezone.now(),
        "lease_until": None,
        "exit_code": result.exit_code,
        "stderr": result.stderr,
        "error": error[:ERROR_SHOWN],
        "usage": _usage(stage, result),
        "retriable": bool(error) and result.retriable,
        **_shown_output(result.output),
    }


def _usage(stage: Stage, result: RunResult) -> dict[str, float]:
    """What all runs of the stage have cost: a run's own cost is added to what is there."""
    names: Collection[str] = {*stage.usage, *result.usage}
    return {name: stage.usage.get(name, 0) + result.usage.get(name, 0) for name in sorted(names)}


def _shown_output(output: bytes) -> dict[str, Any]:
    text = output[: OUTPUT_SHOWN * 4].decode("utf-8", "replace").replace("\0", "\ufffd")
    return {"output": text[:OUTPUT_SHOWN], "output_size": len(output)}

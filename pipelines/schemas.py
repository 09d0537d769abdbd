"""The shapes of pipelines in `/api/v1`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from ninja import Schema

from pipelines import covering
from pipelines.costs import Cost
from pipelines.models import Command, Mission, Pipeline, Rule, Stage


class PipelineOut(Schema):
    """One pipeline. `error` is for the operator and never reaches the requester."""

    id: UUID
    message: int
    identity: str
    requester: str
    status: str
    planner: str
    plan: list[dict[str, Any]]
    refused_rule: str
    current: int
    failing: bool
    error: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @classmethod
    def of(cls, row: Pipeline) -> PipelineOut:
        """The shape of one row."""
        return cls(
            id=row.pk,
            message=row.message_id,
            identity=row.identity.handle,
            requester=row.requester,
            status=row.status,
            planner=row.planner,
            plan=row.plan,
            refused_rule=row.refused_rule,
            current=row.current,
            failing=row.failing,
            error=row.error,
            created_at=row.created_at,
            started_at=row.started_at,
            finished_at=row.finished_at,
        )


class PipelinePage(Schema):
    """Some pipelines, newest first."""

    items: list[PipelineOut]
    next_cursor: str | None


class StageOut(Schema):
    """One stage as it went. `output` is cut; `output_size` is in bytes."""

    position: int
    command: str
    digest: str
    args: dict[str, Any]
    runner: str
    mode: str
    status: str
    attempt: int
    started_at: datetime | None
    finished_at: datetime | None
    argv: list[list[str]]
    exit_code: int | None
    output: str
    output_size: int
    stderr: str
    error: str
    usage: dict[str, Any]

    @classmethod
    def of(cls, row: Stage) -> StageOut:
        """The shape of one row."""
        return cls(**{name: getattr(row, name) for name in cls.model_fields})


class MissionOut(Schema):
    """One mission in a list. `usd` and `turns` are what its rounds have cost so far."""

    id: UUID
    pipeline: UUID
    stage: int
    attempt: int
    command: str
    status: str
    round: int
    rounds: int
    usd: float
    max_usd: float
    turns: int
    write_set: list[str]
    worker: str
    evaluator: str
    opened_at: datetime
    dispatched_at: datetime | None
    closed_at: datetime | None
    closed_by: str
    released_at: datetime | None
    released_by: str
    reason: str

    @classmethod
    def of(cls, row: Mission) -> MissionOut:
        """The shape of one row; `stage` is the position in its pipeline."""
        return cls(**cls._values(row))

    @classmethod
    def _values(cls, row: Mission) -> dict[str, Any]:
        own = {name: getattr(row, name) for name in MissionOut.model_fields}
        return {**own, "pipeline": row.pipeline_id, "stage": row.stage.position}


class MissionPage(Schema):
    """Some missions, newest first."""

    items: list[MissionOut]
    next_cursor: str | None


class MissionDetail(MissionOut):
    """One mission whole: its contract, and everything that was handed in and happened."""

    contract: dict[str, Any]
    contract_sha256: str
    results: list[dict[str, Any]]
    reflections: list[dict[str, Any]]
    events: list[dict[str, Any]]
    tool_calls: list[dict[str, Any]]

    @classmethod
    def whole(cls, row: Mission, *, is_covered: bool) -> MissionDetail:
        """The shape of one row with what belongs to it, as far as its mail may be read."""
        shown = covering.mission(row) if is_covered else row
        results: Iterable[Any] = row.results.order_by("round")
        reflections: Iterable[Any] = row.reflections.order_by("round")
        tool_calls: Iterable[Any] = row.tool_calls.order_by("asked_at")
        if is_covered:
            results = map(covering.result, results)
            reflections = map(covering.reflection, reflections)
            tool_calls = map(covering.tool_call, tool_calls)
        return cls(
            **cls._values(shown),
            contract=shown.contract,
            contract_sha256=row.contract_sha256,
            results=_rows(results, _RESULT),
            reflections=_rows(reflections, _REFLECTION),
            events=_rows(row.events.order_by("id"), _EVENT),
            tool_calls=_rows(tool_calls, _TOOL_CALL),
        )


_RESULT = (
    *("round", "verdict", "confidence", "prose", "output", "files", "files_changed"),
    *("open_questions", "submitted_at", "submitted_by"),
)
_REFLECTION = (
    *("round", "converging", "signals", "recommendation", "reason", "created_at", "created_by"),
)
_EVENT = ("at", "kind", "actor", "facts")
_TOOL_CALL = (
    *("id", "round", "tool", "input", "digest", "state", "reason"),
    *("asked_at", "answered_at", "used_at"),
)


def _rows(rows: Iterable[Any], names: Iterable[str]) -> list[dict[str, Any]]:
    return [{name: getattr(row, name) for name in names} for row in rows]


class CostOut(Schema):
    """What the missions of one key have cost: a day (UTC), a command or a requester. US dollars."""

    key: str
    missions: int
    turns: int
    usd: float

    @classmethod
    def of(cls, cost: Cost) -> CostOut:
        """The shape of one sum."""
        return cls(key=cost.key, missions=cost.missions, turns=cost.turns, usd=float(cost.usd))


class CostsOut(Schema):
    """What missions that were opened within so many days have cost.

    `by_day` has the days that cost anything, newest first; `by_command` and `by_requester` the
    dearest 50, dearest first.
    """

    days: int
    total: CostOut
    by_day: list[CostOut]
    by_command: list[CostOut]
    by_requester: list[CostOut]


class CommandOut(Schema):
    """One command: its document, and whether its signature held when it was last looked at."""

    name: str
    runner: str
    description: str
    serial: int
    digest: str
    signature_state: str
    signature_detail: str
    checked_at: datetime | None
    document: dict[str, Any]

    @classmethod
    def of(cls, row: Command) -> CommandOut:
        """The shape of one row; no document where somebody wrote something else into it."""
        values = {name: getattr(row, name) for name in cls.model_fields}
        return cls(**values | {"document": row.document if isinstance(row.document, dict) else {}})


class CommandPage(Schema):
    """Some commands."""

    items: list[CommandOut]
    next_cursor: str | None


class RuleOut(Schema):
    """One planning rule, with how often it has planned."""

    name: str
    position: int
    is_active: bool
    identity: str | None
    sender: str
    kind: str
    match: str
    calls: list[dict[str, Any]]
    hits: int
    last_hit_at: datetime | None

    @classmethod
    def of(cls, row: Rule) -> RuleOut:
        """The shape of one row."""
        plain = {name: getattr(row, name) for name in cls.model_fields if name != "identity"}
        plain["calls"] = [call for call in row.calls or () if isinstance(call, dict)]
        return cls(identity=row.identity.handle if row.identity else None, **plain)

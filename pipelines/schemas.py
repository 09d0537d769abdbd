"""The shapes of pipelines in `/api/v1`."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from ninja import Schema

from pipelines.models import Command, Pipeline, Rule, Stage


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
        """The shape of one row."""
        return cls(**{name: getattr(row, name) for name in cls.model_fields})


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
        return cls(identity=row.identity.handle if row.identity else None, **plain)

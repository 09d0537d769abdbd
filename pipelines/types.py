"""Plain values of pipelines: a planned call, a runner's result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class CommandCall:
    """One command with its arguments, as a planner wrote it: untrusted until validated."""

    command: str
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a planner made of a message. `planner` is `rule:NAME`, `claude` or `none`."""

    planner: str
    calls: tuple[CommandCall, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanRefused:
    """Why a plan does not run: the rule's name and a detail for the operator, never mailed."""

    rule: str
    detail: str


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a runner's stage ended.

    `output` is its standard output (at most 1 MB), `error` what went wrong in one sentence for the
    operator, `stderr` the tail of its standard error. `exit_code` is None when nothing ran.
    """

    ok: bool
    output: bytes = b""
    exit_code: int | None = None
    error: str = ""
    stderr: str = ""

"""Rows of work without what may come from its mail: for showing where that mail may not be read.

Each function gives a copy that is shown and never saved. What we decided, counted and timed stays,
and so do the names of arguments, which the signed command gives them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from typing import Any

from mail.models import Outbound
from pipelines.models import Mission, MissionResult, Pipeline, Reflection, Stage, ToolCall

#: What stands for mail that may not be read here.
COVERED = "[redacted — no read permission]"


def pipeline(row: Pipeline) -> Pipeline:
    """Its plan without arguments, and not what went wrong with which words."""
    shown = copy(row)
    shown.plan = [_call(call) for call in row.plan]
    shown.error = _text(row.error)
    return shown


def stage(row: Stage) -> Stage:
    """Without arguments, vectors, outputs and the error that may repeat them."""
    shown = copy(row)
    shown.args = _arguments(row.args)
    shown.argv = [[COVERED]] if row.argv else []
    shown.output, shown.stderr = _text(row.output), _text(row.stderr)
    shown.error = _text(row.error)
    return shown


def contract(document: Mapping[str, Any]) -> dict[str, Any]:
    """What was signed, and neither the arguments nor the pipe that it was given."""
    inputs = document.get("inputs", {})
    given = {"args": _arguments(inputs.get("args", {})), "pipeline_output": COVERED}
    return {**document, "inputs": {**inputs, **given}}


def mission(row: Mission) -> Mission:
    """Its contract without what it was given, and no reason."""
    shown = copy(row)
    shown.contract, shown.reason = contract(row.contract), _text(row.reason)
    return shown


def result(row: MissionResult) -> MissionResult:
    """What a worker found, but not what it says."""
    shown = copy(row)
    shown.prose = _text(row.prose)
    shown.output = None if row.output is None else COVERED
    shown.open_questions = [COVERED for _ in row.open_questions]
    return shown


def reflection(row: Reflection) -> Reflection:
    """Which way a worker goes, but not why."""
    shown = copy(row)
    shown.reason = _text(row.reason)
    shown.signals = [COVERED for _ in row.signals]
    return shown


def tool_call(row: ToolCall) -> ToolCall:
    """Which tool, but not what it would be given."""
    shown = copy(row)
    shown.input = _arguments(row.input)
    return shown


def mail(row: Outbound) -> Outbound:
    """An answer without its words: it repeats what was asked and what came of it."""
    shown = copy(row)
    shown.subject, shown.text = _text(row.subject), _text(row.text)
    return shown


def _call(call: Any) -> Any:
    return {**call, "args": _arguments(call.get("args", {}))} if isinstance(call, dict) else COVERED


def _arguments(given: Iterable[str]) -> dict[str, Any]:
    return dict.fromkeys(given, COVERED)


def _text(text: str) -> str:
    return COVERED if text else ""

"""The tables of pipelines: signed commands, rules that plan, work as it went, missions."""

from __future__ import annotations

from pipelines.models.commands import Command, Rule, RuleHit
from pipelines.models.missions import Mission, MissionEvent, MissionResult, Reflection, ToolCall
from pipelines.models.work import ExecutorTurn, Pipeline, Stage

__all__ = [
    "Command",
    "ExecutorTurn",
    "Mission",
    "MissionEvent",
    "MissionResult",
    "Pipeline",
    "Reflection",
    "Rule",
    "RuleHit",
    "Stage",
    "ToolCall",
]

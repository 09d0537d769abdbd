"""Where runners and planners plug in. `CONTRIBUTING.md` shows how to add a runner.

A runner carries one stage out; a planner turns a message into calls. Both are registered once, in
an app's `ready()`. What they return is checked by pipelines before it counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from pipelines.exceptions import RunnerMissing
from pipelines.types import CommandSpec, Job, Plan, PlanningRequest, RunResult


class Runner(Protocol):
    """One way to carry out a stage. `name` is what a command's `runner` field says."""

    name: str

    def check(self, spec: CommandSpec) -> None:
        """Refuse what could not run on this host: at load and again before each run.

        Raises BinaryNotAllowed or another CountersignError; no contact, no child.
        """
        ...

    def describe(self, job: Job) -> Sequence[Sequence[str]]:
        """What will run, as argument vectors, for the record. ArgumentInvalid refuses the stage."""
        ...

    def run(self, job: Job) -> RunResult:
        """Carry it out within the command's timeout. Never raises for what the child does."""
        ...


class Planner(Protocol):
    """One way to make calls of a message. `name` is what `Pipeline.planner` shows."""

    name: str

    def plan(self, request: PlanningRequest) -> Plan | None:
        """The calls, or None when this planner has nothing to say about the message."""
        ...


_runners: dict[str, Runner] = {}
_planners: dict[str, Planner] = {}


def register_runner(runner: Runner) -> None:
    """Make a runner known under its name; a later one of the same name takes its place."""
    _runners[runner.name] = runner


def runner(name: str) -> Runner:
    """The runner of that name; RunnerMissing says which one is not installed."""
    try:
        return _runners[name]
    except KeyError:
        raise RunnerMissing(f"no runner for {name} is installed", field="runner") from None


def runner_names() -> frozenset[str]:
    """All installed runners."""
    return frozenset(_runners)


def register_planner(planner: Planner) -> None:
    """Make a planner known; they are asked in the order of registration, the rules first."""
    _planners[planner.name] = planner


def planners() -> Iterable[Planner]:
    """All planners, in order."""
    return tuple(_planners.values())

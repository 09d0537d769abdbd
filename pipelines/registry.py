"""Where runners and planners plug in. `CONTRIBUTING.md` shows how to add a runner.

A runner carries one stage out; a planner turns a message into calls. Both are registered once, in
an app's `ready()`. What they return is checked by pipelines before it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeGuard
from uuid import UUID

from guards.process import Session, Several
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

    def prepare(self, job: Job) -> None:
        """Make what the run needs on record, while the stage is claimed and nothing has started.

        StageMustWait puts the pipeline back into the queue; another CountersignError fails it.
        """
        ...

    def run(self, job: Job) -> RunResult:
        """Carry it out within the command's timeout. Never raises for what the child does."""
        ...


class Startable(Runner, Protocol):
    """A runner whose stages can run beside others in one thread; `run` is both in one."""

    def order(self, job: Job, vectors: Sequence[Sequence[str]], several: Several) -> Session:
        """Have what `describe` has said, which is on record, started.

        `several` confirms that, and says when it has ended. A CountersignError where it may not be.
        """
        ...

    def result(self, job: Job, session: Session) -> RunResult:
        """What has come of it, once it has ended. Never raises for what the child did."""
        ...


class BuiltIn(Runner, Protocol):
    """A command that the program brings itself: no document, no signature, its own spec."""

    #: Whether a planner may name it.
    plannable: bool

    @property
    def spec(self) -> CommandSpec:
        """The command as planning and the executor see it; its name is reserved (DES-029)."""
        ...

    def adopt(self, pipeline_id: UUID, stage_id: int, output: bytes) -> None:
        """What the output changes beside the pipe; joins the transaction that records its end.

        A CountersignError rolls that back and fails the stage. Database only.
        """
        ...


class Planner(Protocol):
    """One way to make calls of a message. `name` is what `Pipeline.planner` shows."""

    name: str

    def plan(self, request: PlanningRequest) -> Plan | None:
        """The calls, or None when this planner has nothing to say about the message."""
        ...


_runners: dict[str, Runner] = {}
_planners: dict[str, Planner] = {}


def needs_preparation(runner: Runner) -> bool:
    """Whether `prepare` does anything; a runner without a need for it says `prepares = False`.

    Its stages are then claimed and started in one transaction.
    """
    return bool(getattr(runner, "prepares", True))


def is_startable(runner: Runner) -> TypeGuard[Startable]:
    """Whether its stages can run beside others."""
    return callable(getattr(runner, "order", None)) and callable(getattr(runner, "result", None))


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


_built_in: dict[str, BuiltIn] = {}


def register_built_in(command: BuiltIn) -> None:
    """Make a built-in command known under its name."""
    _built_in[command.spec.name] = command


def built_in(name: str) -> BuiltIn | None:
    """The built-in command of that name."""
    return _built_in.get(name)


_waiters: list[Callable[[int], bool]] = []


def register_waiter(is_answered: Callable[[int], bool]) -> None:
    """Make one known who can say of a waiting stage (by its row) that its answer is there."""
    if is_answered not in _waiters:
        _waiters.append(is_answered)


def is_answered(stage_id: int) -> bool:
    """Whether what this stage waits for has been answered, as far as anybody knows."""
    return any(waiter(stage_id) for waiter in _waiters)


def register_planner(planner: Planner) -> None:
    """Make a planner known; they are asked in the order of registration, the rules first."""
    _planners[planner.name] = planner


def planners() -> Iterable[Planner]:
    """All planners, in order."""
    return tuple(_planners.values())

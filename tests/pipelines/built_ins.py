"""A built-in command for tests, which does at each step what the test says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID

from pipelines import registry
from pipelines.models import Pipeline, Stage
from pipelines.types import CommandSpec, Job, RunResult
from tests.pipelines.factories import MessageFactory, PipelineFactory, StageFactory

#: Two seconds: far below what the queue leaves a task.
TIMEOUT = 2.0


@dataclass
class Asking:
    """Runs, once for each entry of `results`; what `prepare` and `adopt` do comes before."""

    results: list[RunResult] = field(default_factory=lambda: [RunResult(ok=True, output=b'"done"')])
    preparing: Callable[[Job], None] = lambda job: None
    running: Callable[[Job], None] = lambda job: None
    adopting: Callable[[UUID, int, bytes], None] = lambda pipeline_id, stage_id, output: None
    name: str = "ask"
    plannable: bool = False
    repeatable: bool = False
    jobs: list[Job] = field(default_factory=list)

    @property
    def spec(self) -> CommandSpec:
        return CommandSpec(
            name=self.name, runner="built-in", mode="process", description="", arguments=(),
            output_schema=None, files=False, write_set=(), timeout=TIMEOUT, environment={},
            serial=1, valid_until=None, end_of_options=False, repeatable=self.repeatable,
            reply=True, project="", steps=(), document={},
        )  # fmt: skip

    def check(self, spec: CommandSpec) -> None:
        pass

    def describe(self, job: Job) -> Sequence[Sequence[str]]:
        return []

    def prepare(self, job: Job) -> None:
        self.preparing(job)

    def run(self, job: Job) -> RunResult:
        self.jobs.append(job)
        self.running(job)
        return self.results.pop(0)

    def adopt(self, pipeline_id: UUID, stage_id: int, output: bytes) -> None:
        self.adopting(pipeline_id, stage_id, output)


@contextmanager
def installed(command: Asking) -> Iterator[Asking]:
    """The command is a built-in one of this name until the end of the block."""
    registry.register_built_in(command)
    try:
        yield command
    finally:
        del registry._built_in[command.name]


@contextmanager
def answering(is_answered: Callable[[int], bool]) -> Iterator[None]:
    """Somebody who can say whether a waiting stage was answered, until the end of the block."""
    registry.register_waiter(is_answered)
    try:
        yield
    finally:
        registry._waiters.remove(is_answered)


def asking_pipeline(desk, *commands: str, **fields) -> tuple[Pipeline, list[Stage]]:
    """A due pipeline of the requester whose stages are these built-in commands, then the reply."""
    message = MessageFactory(account=desk.account, sender=desk.requester.email, execution="taken")
    pipeline = PipelineFactory(message=message, **fields)
    names = [*(commands or ("ask",)), "reply"]
    stages = [
        StageFactory(pipeline=pipeline, position=position, command=name)
        for position, name in enumerate(names, start=1)
    ]
    return pipeline, stages

"""The `cli` runner: one program, or a chain joined by pipes, without a shell (DES-030, 031).

The pipe's JSON is on standard input, standard output is the result. Programs are found in the
allow-list, when a command is loaded and again each time it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from guards import process
from guards.exceptions import CountersignError, ProcessFailed
from guards.process import ProcessResult
from pipelines import arguments, options
from pipelines.pipes import MAX_OUTPUT_BYTES
from pipelines.runners import base
from pipelines.types import CommandSpec, Job, RunResult


class CliRunner:
    """Runs `binary` with `fixed_args` and arguments, or `steps`."""

    name = "cli"
    prepares = False

    def check(self, spec: CommandSpec) -> None:
        """BinaryNotAllowed or OptionNotAllowed unless every program may run with these words."""
        options.check(spec)

    def describe(self, job: Job) -> Sequence[Sequence[str]]:
        """The argument vectors, programs as their full paths."""
        words = arguments.layout(job.spec, job.args)
        return [
            [str(process.resolve_binary(step.binary)), *step.fixed_args, *words]
            for step in job.spec.steps
        ]

    def prepare(self, job: Job) -> None:
        """Nothing: a program needs no contract."""

    def run(self, job: Job) -> RunResult:
        """Run to the end, within the command's timeout over the whole chain."""
        try:
            ended = process.run_steps(self.describe(job), **_options(job))
        except ProcessFailed as error:
            base.end_children(job.pipeline)
            return RunResult(ok=False, error=error.detail)
        except CountersignError as error:
            return RunResult(ok=False, error=error.detail)
        return _result(job, ended)

    def order(
        self, job: Job, vectors: Sequence[Sequence[str]], several: process.Several
    ) -> process.Session:
        """Have it started beside others, with the vectors that are on record."""
        return several.order(vectors, **_options(job))

    def result(self, job: Job, session: process.Session) -> RunResult:
        """How one that was started beside others has ended."""
        return _result(job, session.result())


def _result(job: Job, ended: ProcessResult) -> RunResult:
    """What a lost supervisor can no longer end is known by its mark."""
    if ended.is_lost:
        base.end_children(job.pipeline)
    return base.result_of(ended, timeout=job.spec.timeout)


def _options(job: Job) -> dict[str, Any]:
    return {
        "stdin": job.pipe,
        "timeout": job.spec.timeout,
        "env": {**base.places(job), **base.environment(job)},
        "cwd": job.workplace,
        "max_output": MAX_OUTPUT_BYTES,
    }

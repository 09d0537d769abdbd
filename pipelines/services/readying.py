"""One stage as it will run, with everything about it looked at again at that moment.

Signature, standing, arguments, files, project and program: what was true when the pipeline was
planned counts for nothing. No row is written here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from guards.exceptions import CountersignError
from pipelines import arguments, pipes, registry
from pipelines.exceptions import CommandNotRunnable, RunnerMissing
from pipelines.models import Command, Stage
from pipelines.registry import BuiltIn, Runner
from pipelines.services import files, stages, verification
from pipelines.services.intake import REPLY
from pipelines.types import CommandSpec, Job, RunRule
from teams import selectors as teams

#: What `Stage.runner` says of a command that the program brings itself.
BUILT_IN = "built-in"


@dataclass(frozen=True, slots=True)
class Work:
    """Who runs the stage, its job, and how that reads for the record."""

    runner: Runner
    job: Job
    directory: Path
    vectors: list[list[str]]
    built_in: BuiltIn | None = None

    @property
    def spec(self) -> CommandSpec:
        """The command as it is now."""
        return self.job.spec


def ready(
    stage: Stage,
    pipe: Mapping[str, Any],
    directory: Path,
    *,
    looked_at: CommandSpec | None = None,
) -> Work:
    """What will run; a CountersignError says why the stage may not.

    `directory` is the pipeline's own. `looked_at` is the stage's command, where it was looked at
    in this very moment.
    """
    built_in: BuiltIn | None = None
    runner: Runner
    if stage.runner == BUILT_IN:
        built_in = _installed(stage.command)
        spec, runner = built_in.spec, built_in
    else:
        spec = looked_at or runnable(stage)
        runner = registry.runner(spec.runner)
    handed = files.handed(pipe, directory)
    job = Job(
        spec,
        arguments.complete(spec, stage.args, handed),
        pipes.encode(handed),
        str(stage.pipeline_id),
        stage=stage.pk,
        attempt=stages.attempt_of(stage),
        directory=directory,
        workplace=_workplace(spec, directory),
    )
    vectors = [list(vector) for vector in runner.describe(job)]
    return Work(runner, job, directory, vectors, built_in)


def runnable(stage: Stage) -> CommandSpec:
    """The signed command as its row is now, which must be the one that was planned."""
    return verification.find_runnable(stage.command, planned_digest=stage.digest)[0]


def runnable_of(found: Collection[Command], stage: Stage) -> CommandSpec:
    """The same, among commands that were read in this very moment."""
    return verification.runnable_of(found, stage.command, planned_digest=stage.digest)[0]


def wants_answer(pipeline_id: UUID) -> bool:
    """All work was done by an earlier run: what its last command says of the answer counts."""
    done = Stage.objects.filter(pipeline_id=pipeline_id).exclude(command=REPLY)
    last = done.order_by("-position").first()
    if last is None or last.runner == BUILT_IN:
        return True
    try:
        return runnable(last).reply
    except CountersignError:
        return True


def _installed(name: str) -> BuiltIn:
    command = registry.built_in(name)
    if command is None:
        raise RunnerMissing(f"{name} is not installed", field="runner")
    return command


def _workplace(spec: CommandSpec, directory: Path) -> Path:
    """The root of the command's project, else the pipeline's own directory."""
    if not spec.project:
        return directory
    project = teams.projects().filter(slug=spec.project).first()
    if project is None or not project.root:
        raise CommandNotRunnable(
            f"{spec.name}: the project {spec.project} has no root on this host",
            field="project",
            rule=RunRule.NO_PROJECT_ROOT.value,
        )
    return Path(project.root)

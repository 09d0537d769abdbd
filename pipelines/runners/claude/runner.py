"""The `claude` runner: a stage as a mission of the real Claude Code program (DES-027)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import structlog
from django.conf import settings

from guards.exceptions import CountersignError
from pipelines.exceptions import MissionRefused
from pipelines.models import Mission, Pipeline
from pipelines.runners.claude import command_line, lodging, preflight, rounds
from pipelines.runners.claude.command_line import Words
from pipelines.services import missions, planning, rows
from pipelines.types import CommandSpec, Job, MissionRule, RunResult

log = structlog.get_logger(__name__)

#: Who works on missions, as their contracts name it.
WORKER = "claude"


class ClaudeRunner:
    """Opens a mission, has the program work on it in a sandbox, and closes it at the gate."""

    name = "claude"

    def check(self, spec: CommandSpec) -> None:
        """Refuse a command that no worker could carry out as it stands.

        Where commands are loaded need not be where workers run: of the host, `prepare` knows.
        """
        preflight.check_command(spec)

    def describe(self, job: Job) -> Sequence[Sequence[str]]:
        """The program's words; what only a mission knows stands in capitals."""
        budget = job.spec.budget
        words = Words(
            program=Path(settings.CLAUDE_BINARY),
            servers_file=Path("MISSION/servers.json"),
            prompt_file=Path("MISSION/prompt.md"),
            session="SESSION",
            prompt=command_line.prompt("MISSION", 1),
            usd=budget.max_usd if budget else 0.0,
        )
        return [command_line.build(job.spec, words)]

    def prepare(self, job: Job) -> None:
        """Open the stage's mission, or find the one that goes on; StageMustWait puts it back."""
        preflight.check_command(job.spec)
        preflight.check_host(job.spec)
        pipeline = Pipeline.objects.select_related("identity").get(pk=job.pipeline)
        kind = "planner" if job.spec.name == planning.PLAN else "command"
        mission = missions.admit(job=job, pipeline=pipeline, worker=WORKER, kind=kind)
        _refuse_elsewhere(mission, job)

    def run(self, job: Job) -> RunResult:
        """Work on the mission to its end, or until it waits for a person."""
        work = rounds.begin(job)
        try:
            return work.carry_out()
        except CountersignError as error:
            detail = f"{error.rule}: {error.detail}" if error.rule else error.detail
            return _stopped(work.mission, detail, retriable=not error.permanent)
        except OSError as error:
            return _stopped(work.mission, f"this host cannot go on: {error}", retriable=True)
        finally:
            _leave(work.mission)


def _refuse_elsewhere(mission: Mission, job: Job) -> None:
    """A mission that goes on after days does so where it began: what was allowed was for there."""
    began, here = mission.contract.get("workplace"), str(job.workplace or job.directory or "")
    if began != here:
        raise MissionRefused(
            f"{mission} began in {began}, and its project is in {here} now",
            rule=MissionRule.CONTRACT_CHANGED.value,
        )


def _stopped(mission: Mission, detail: str, *, retriable: bool) -> RunResult:
    missions.fail(mission=mission, reason=detail)
    return RunResult(ok=False, error=detail, retriable=retriable)


def _leave(mission: Mission) -> None:
    """What the mission had on disk goes with it; one that waits for a person keeps it."""
    if not rows.find(Mission, where={"pk": mission.pk, "status": Mission.Status.OPEN}):
        lodging.clear(mission.pk)

"""The built-in command `send`: the pipe goes by mail to an address that holds `w` (DES-029)."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from pipelines import specification
from pipelines.services import sending
from pipelines.types import ArgumentSpec, ArgumentType, CommandSpec, Job, RunResult

#: Longer than one SMTP session may take, in seconds.
_TIMEOUT = 150.0

SPEC = specification.built_in(
    "send",
    "Send the pipe, its files attached, to an address that holds w.",
    timeout=_TIMEOUT,
    arguments=(
        ArgumentSpec("to", ArgumentType.STRING, required=True, max_length=254),
        ArgumentSpec("subject", ArgumentType.STRING, required=True, max_length=800),
    ),
)


class SendCommand:
    """`send` as planning and the executor see it."""

    name = SPEC.name
    spec = SPEC
    plannable = True
    prepares = False

    def check(self, spec: CommandSpec) -> None:
        """Nothing on this host can be missing."""

    def describe(self, job: Job) -> Sequence[Sequence[str]]:
        """What is asked for, as it reads for the record."""
        return [["send", f"--to={job.args['to']}", f"--subject={job.args['subject']}"]]

    def prepare(self, job: Job) -> None:
        """Nothing: the message is on record before it leaves."""

    def run(self, job: Job) -> RunResult:
        """Write the stage's one message, have it sent or held, and say how that stands."""
        return sending.carry_out(job)

    def adopt(self, pipeline_id: UUID, stage_id: int, output: bytes) -> None:
        """The pipe passes through: nothing changes beside it."""

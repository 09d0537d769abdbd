"""The built-in command `send`: the pipe goes by mail to an address that holds `w` (DES-029)."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from pipelines.services import sending
from pipelines.types import ArgumentSpec, ArgumentType, CommandSpec, Job, RunResult

#: Longer than one SMTP session may take, in seconds.
_TIMEOUT = 150.0

SPEC = CommandSpec(
    name="send",
    runner="built-in",
    mode="passthrough",
    description="Send the pipe, its files attached, to an address that holds w.",
    arguments=(
        ArgumentSpec("to", ArgumentType.STRING, required=True, max_length=254),
        ArgumentSpec("subject", ArgumentType.STRING, required=True, max_length=800),
    ),
    output_schema=None,
    files=False,
    write_set=(),
    timeout=_TIMEOUT,
    environment={},
    serial=1,
    valid_until=None,
    end_of_options=False,
    repeatable=False,
    reply=True,
    project="",
    steps=(),
    document={},
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

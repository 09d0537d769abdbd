"""What pipelines refuses. A docstring is the sentence that people read."""

from __future__ import annotations

from guards.exceptions import Conflict, CountersignError, InvalidInput, Refused


class DocumentInvalid(InvalidInput):
    """A command document does not have the published form; `field` is the path to what is wrong."""

    code = "command-invalid"


class DocumentUnreadable(InvalidInput):
    """A command file is not one plain YAML or JSON mapping."""

    code = "command-unreadable"


class SerialRefused(Refused):
    """A command's serial went back, or its content changed under the same serial."""

    code = "serial-refused"


class CommandNotRunnable(Refused):
    """A command may not run now; `rule` says why."""

    code = "command-not-runnable"


class OptionNotAllowed(Refused):
    """A program of the list of safe options would be given one that is not on it."""

    code = "option-not-allowed"
    rule = "option-not-allowed"


class ArgumentInvalid(InvalidInput):
    """An argument does not match what the command declares."""

    code = "argument-invalid"


class OutputInvalid(InvalidInput):
    """A stage's output does not have the form that its command declares."""

    code = "output-invalid"


class RunnerMissing(CountersignError):
    """No runner of this name is installed."""

    code = "runner-missing"


class RuleInvalid(InvalidInput):
    """A planning rule cannot be read."""

    code = "rule-invalid"


class ClaimLost(Conflict):
    """Somebody else holds this work now; nothing more may be recorded under the old claim."""

    code = "claim-lost"


class StageMustWait(Conflict):
    """A stage cannot begin just now; its pipeline goes back into the queue."""

    code = "stage-must-wait"


class ResumeRefused(Refused):
    """A pipeline does not go on from where it stopped; `rule` says why."""

    code = "resume-refused"


class MissionRefused(Refused):
    """A mission may not do this; `rule` says why."""

    code = "mission-refused"


class GateRefused(MissionRefused):
    """A mission may not close with what was handed in; `rule` says why. Nobody can override it."""

    code = "gate-refused"


class SnapshotRefused(CountersignError):
    """A working directory cannot be compared with what it was."""

    code = "snapshot-refused"


class ContractInvalid(InvalidInput):
    """A mission's contract, result or reflection does not have its exact form."""

    code = "mission-document-invalid"


class FilesRefused(InvalidInput):
    """A file of the pipe lies where none may lie, is missing, or is too large."""

    code = "files-refused"


class ServerMissing(CountersignError):
    """Our MCP server does not answer, so no worker of a mission gets to its model."""

    code = "mcp-server-missing"
    rule = "mcp-server-missing"
    permanent = False


class SandboxMissing(CountersignError):
    """What would confine this command's worker is not there, so it does not start."""

    code = "sandbox-missing"
    rule = "sandbox-missing"

"""Plain values of pipelines: a command as its document says it, a planned call, a run's result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any


class LoadResult(StrEnum):
    """What became of one command file."""

    LOADED = "loaded"
    REJECTED = "rejected"
    OPERATIONAL = "operational"


class LoadCause(StrEnum):
    """Why a file was not loaded: what was looked at when it failed."""

    FORM = "form"
    SIGNATURE = "signature"
    SCHEMA = "schema"
    BINARY = "binary"
    OPTION = "option"
    SERIAL = "serial"
    OWNER_KEY = "owner-key"
    FILE = "file"


class PlanRule(StrEnum):
    """Why a pipeline has no work stages: the closed list of refusals at planning."""

    NO_PLAN = "no-plan"
    UNKNOWN_COMMAND = "unknown-command"
    RESERVED_COMMAND = "reserved-command"
    COMMAND_NOT_RUNNABLE = "command-not-runnable"
    INVALID_ARGUMENT = "invalid-argument"
    TOO_MANY_STAGES = "too-many-stages"


class RunRule(StrEnum):
    """Why a signed command may not run at this moment: the closed list of checks at execution."""

    MISSING = "missing"
    INVALID = "invalid"
    WRONG_KEY = "wrong-key"
    EXPIRED_KEY = "expired-key"
    NO_OWNER_KEY = "no-owner-key"
    OWNER_KEY_INVALID = "owner-key-invalid"
    NOT_CHECKED = "not-checked"
    CHANGED = "changed"
    PAST_VALID_UNTIL = "past-valid-until"
    SUPERSEDED = "superseded"
    SCHEMA = "schema"
    BINARY = "binary-not-allowed"
    OPTION = "option-not-allowed"
    GONE = "gone"
    NO_PROJECT_ROOT = "no-project-root"
    NO_TIME = "no-time"


class ResumeRule(StrEnum):
    """Why a pipeline does not go on from where it stopped: the closed list."""

    NOT_INTERRUPTED = "not-interrupted"
    NOTHING_PLANNED = "nothing-planned"
    NOT_RETRIABLE = "not-retriable"
    NOT_REPEATABLE = "not-repeatable"
    MAIL_UNDER_WAY = "mail-under-way"
    MAIL_UNKNOWN = "mail-unknown"
    RESULT_MAY_HAVE_LEFT = "result-may-have-left"


class DryRunRule(StrEnum):
    """Why a dry run says that nothing would run, beside the decision rules of the message."""

    UNKNOWN_COMMAND = "unknown-command"
    UNSIGNED = "unsigned"
    STALE_SERIAL = "stale-serial"
    EXPIRED_COMMAND = "expired-command"
    BAD_ARGUMENT = "bad-argument"
    BINARY = "binary-not-allowed"
    OPTION = "option-not-allowed"
    SCHEMA = "schema"
    NO_PLAN = "no-plan"
    RESERVED_COMMAND = "reserved-command"
    TOO_MANY_STAGES = "too-many-stages"


class MissionRule(StrEnum):
    """Why a mission may not open, go on or close: the closed list of its refusals."""

    NO_BUDGET = "no-budget"
    DAILY_BUDGET = "daily-budget"
    EVALUATOR_IS_WORKER = "evaluator-is-worker"
    EVALUATOR_CHANGED = "evaluator-changed"
    NOT_THE_EVALUATOR = "not-the-evaluator"
    NOT_THE_WORKER = "not-the-worker"
    COMMAND_CHANGED = "command-changed"
    CONTRACT_CHANGED = "contract-changed"
    MISSION_ENDED = "mission-ended"
    MISSION_OPEN = "mission-open"
    NOT_DISPATCHED = "not-dispatched"
    DISPATCHED = "already-dispatched"
    NO_RESULT = "no-result"
    VERDICT = "verdict-not-pass"
    OUTSIDE_WRITE_SET = "outside-write-set"
    BUDGET_SPENT = "budget-spent"


class DocumentRule(StrEnum):
    """What is wrong at one place of a mission's document: the closed list of strict reading."""

    NOT_JSON = "not-json"
    WRONG_TYPE = "wrong-type"
    UNKNOWN_KEY = "unknown-key"
    MISSING_KEY = "missing-key"
    SERVER_STAMPED = "server-stamped"
    OUT_OF_RANGE = "out-of-range"
    TOO_LARGE = "too-large"
    NOT_STORABLE = "not-storable"
    PATH = "not-a-plain-path"
    OUTSIDE_WRITE_SET = "outside-write-set"
    FILES_NOT_DECLARED = "files-not-declared"
    OUTPUT = "output-schema"
    REFLECTION_REQUIRED = "reflection-required"


class FileRule(StrEnum):
    """Why a file of the pipe, or its directory, was refused: the closed list (DES-032)."""

    PATH_EMPTY = "path-empty"
    PATH_MISSING = "path-missing"
    PATH_CONTROL = "path-control"
    PATH_TOO_LONG = "path-too-long"
    PATH_TOO_DEEP = "path-too-deep"
    PATH_ABSOLUTE = "path-absolute"
    PATH_NOT_PLAIN = "path-not-plain"
    FILE_MISSING = "file-missing"
    FILE_NOT_REGULAR = "file-not-regular"
    FILE_LINKED = "file-linked"
    FILE_TOO_LARGE = "file-too-large"
    FILE_TWICE = "file-twice"
    FILE_CHANGED = "file-changed"
    FILES_TOO_LARGE = "files-too-large"
    TOO_MANY_FILES = "too-many-files"
    TOO_MANY_ENTRIES = "too-many-entries"
    DIRECTORY_TOO_LARGE = "directory-too-large"
    DIRECTORY_GONE = "directory-gone"
    DIRECTORY_FOREIGN = "directory-foreign"
    DISK = "disk"


class ArgumentType(StrEnum):
    """The types that a command's arguments may declare (DES-028)."""

    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    ENUM = "enum"


@dataclass(frozen=True, slots=True)
class ArgumentSpec:
    """One declared argument. `position` makes it positional; `from_pipe` is a JSON Pointer."""

    name: str
    type: ArgumentType
    required: bool = False
    max_length: int | None = None
    choices: tuple[str, ...] = ()
    position: int | None = None
    from_pipe: str | None = None


@dataclass(frozen=True, slots=True)
class StepSpec:
    """One program of a CLI command with the words that always come first."""

    binary: str
    fixed_args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Budget:
    """What a `claude` command may cost: rounds, turns of one round, US dollars of all rounds."""

    rounds: int = 1
    reflection_after_each: bool = False
    max_usd: float = 5.0
    max_turns: int = 50


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """A command document read with its defaults. `document` is what was signed.

    `timeout` is in seconds. `steps` has one entry for a plain `binary`, several for a chain.
    `output_schema` is None (any JSON), `text`, or a JSON Schema. `environment` maps a variable's
    name to the secret reference that fills it.
    """

    name: str
    runner: str
    mode: str
    description: str
    arguments: tuple[ArgumentSpec, ...]
    output_schema: Any
    files: bool
    write_set: tuple[str, ...]
    timeout: float
    environment: Mapping[str, str]
    serial: int
    valid_until: datetime | None
    end_of_options: bool
    repeatable: bool
    reply: bool
    project: str
    steps: tuple[StepSpec, ...]
    document: Mapping[str, Any]
    prompt: str = ""
    budget: Budget | None = None
    mcp_servers: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()

    def argument(self, name: str) -> ArgumentSpec | None:
        """The declared argument of that name."""
        return next((spec for spec in self.arguments if spec.name == name), None)


@dataclass(frozen=True, slots=True)
class CommandCall:
    """One command with its arguments, as a planner wrote it: untrusted until validated."""

    command: str
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a planner made of a message. `planner` is `rule:NAME`, `claude` or `none`."""

    planner: str
    calls: tuple[CommandCall, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanRefused:
    """Why a plan does not run: the rule's name and a detail for the operator, never mailed."""

    rule: str
    detail: str
    planner: str = "none"
    calls: tuple[CommandCall, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """One call that passed: the command as it was read, its digest, its arguments."""

    spec: CommandSpec
    digest: str
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AcceptedPlan:
    """A plan whose every command is signed now and whose every argument matches."""

    planner: str
    stages: tuple[PlannedStage, ...]


@dataclass(frozen=True, slots=True)
class PlanningRequest:
    """What a planner may see of a message: the executable text, who wrote it, to whom."""

    text: str
    sender: str
    identity_id: int | None


@dataclass(frozen=True, slots=True)
class DryCall:
    """One call of a dry run. `argv` is a list of words, or one of lists for `steps`, or None.

    What the pipe will supply stands as `{"from_pipe": POINTER}` in `args` and `argv`. `contract` is
    the mission's, as far as it is known before anything is on record. `signature` is `ok`,
    `missing`, `invalid`, `wrong-key`, `expired-key` or `operational`.
    """

    command: str
    args: Mapping[str, Any]
    runner: str
    argv: list[Any] | None
    contract: Mapping[str, Any] | None
    signature: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """A rule's name and what it says of this case."""

    rule: str
    detail: str


@dataclass(frozen=True, slots=True)
class DryRun:
    """What would become of a message. `calls` are those whose command exists, `reply` left out."""

    planner: str
    calls: tuple[DryCall, ...] = ()
    refused: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a message has no pipeline, or one that only answers: the rule, what it means, what to do.

    `started` says that work was planned: there is nothing to explain.
    """

    rule: str
    sentence: str
    next_step: str
    started: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """What a runner gets for one stage: the command, its checked arguments, the pipe's JSON.

    Files in `pipe` have absolute paths. `directory` is the pipeline's own directory, where files of
    a stage are left; `workplace` is where the stage works: its project's root, or that directory.
    `stage` is the stage's row, 0 where nothing is recorded (a dry run); `attempt` counts its runs.
    """

    spec: CommandSpec
    args: Mapping[str, Any]
    pipe: bytes
    pipeline: str
    stage: int = 0
    attempt: int = 1
    directory: Path | None = None
    workplace: Path | None = None


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a runner's stage ended.

    `output` is its standard output (at most 1 MB), `error` what went wrong in one sentence for the
    operator, `stderr` the tail of its standard error. `exit_code` is None when nothing ran.
    `usage` is what it cost (`turns`, `usd`), where a runner knows. `incomplete`: the program ended
    well but handed in no whole result. `waiting`: it asked for something that only a person may
    allow, and goes on when that is answered. `retriable`: another run could end otherwise.
    """

    ok: bool
    output: bytes = b""
    exit_code: int | None = None
    error: str = ""
    stderr: str = ""
    usage: Mapping[str, float] = field(default_factory=dict)
    incomplete: bool = False
    waiting: bool = False
    retriable: bool = False


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """What became of one command file: which check refused it, where in it, and why."""

    file: str
    name: str
    outcome: LoadResult
    cause: LoadCause | None = None
    reason: str = ""
    field: str | None = None
    detail: str = ""
    digest: str = ""

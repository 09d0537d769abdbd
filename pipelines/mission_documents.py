"""The documents of a mission: its contract, and what a worker hands in. Written and read strictly.

Each has its own exact form, and one is never read as another. What the program writes is read back
by the same decoder before it counts: a contract that our own reader refuses is never opened.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from pipelines import pipes, schema, write_sets
from pipelines.decoding import MAX_DEPTH, Place
from pipelines.exceptions import OutputInvalid
from pipelines.models import MissionResult, Reflection
from pipelines.types import Budget, DocumentRule

#: The form of the contract, and of its digest.
VERSION = "mission/1"

#: Sizes in bytes, and how many entries a list may have.
MAX_PROSE = 100_000
MAX_TASK = 500_000
MAX_LINE = 2_000
MAX_QUESTIONS = 100
MAX_SIGNALS = 50
MAX_REASON = 10_000
MAX_FILES = 256
MAX_CHANGED = 2_000
MAX_WRITE_SET = 256

#: What only the server writes into a result or a reflection.
STAMPED = frozenset(
    {
        *("id", "mission", "mission_id", "ticket", "round", "status", "worker", "evaluator"),
        *("submitted_at", "submitted_by", "created_at", "created_by", "closed_at", "closed_by"),
        *("usd", "turns", "cost", "session_id"),
    }
)


class Kind(StrEnum):
    """What a mission is for: a signed command's stage, or planning."""

    COMMAND = "command"
    PLANNER = "planner"


#: What a worker says of its own round, and what a look back advises.
Verdict = MissionResult.Verdict
Recommendation = Reflection.Recommendation


@dataclass(frozen=True, slots=True)
class Success:
    """What a result must be to count: its output's form, and whether it may name files."""

    output_schema: Any
    mode: str
    files: bool


@dataclass(frozen=True, slots=True)
class Contract:
    """What a mission is, as its worker reads it. Frozen with the row.

    `write_set` and a result's `files_changed` are relative to `workplace`; its `files` to
    `directory`. Arguments and the pipe are data, and never stand in a prompt. `timeout` is in
    seconds and bounds one run.
    """

    id: str
    ticket: str
    kind: Kind
    attempt: int
    command: str
    digest: str
    task: str
    args: Mapping[str, Any]
    pipeline_output: Any
    directory: str
    workplace: str
    project: str
    write_set: tuple[str, ...]
    budget: Budget
    timeout: float
    success: Success
    worker: str
    evaluator: str
    evaluator_digest: str

    def permits(self, path: str, files: Iterable[str] = ()) -> bool:
        """Whether a path below the workplace may change: by the write set, or as a file returned.

        An entry covers itself and what lies below it; what lies above it stays forbidden, and so
        does a path that is not in its one spelling. A `.git` is covered only by an entry that names
        it: its hooks and its configuration run whatever they name, whenever anybody uses git there.
        """
        if not is_plain(path):
            return False
        covering = [entry for entry in self.write_set if write_sets.covers(entry, path)]
        if any(".git" not in path[len(entry) :].split("/") for entry in covering):
            return True
        return self.success.files and self.directory == self.workplace and path in set(files)


def is_plain(path: str) -> bool:
    """Whether a path is in its one spelling: no segment of it is empty, `.` or `..`."""
    return {"", ".", ".."}.isdisjoint(path.split("/"))


@dataclass(frozen=True, slots=True)
class ReflectionDocument:
    """A look back at one round."""

    converging: bool
    signals: tuple[str, ...]
    recommendation: Recommendation
    reason: str


@dataclass(frozen=True, slots=True)
class ResultDocument:
    """What a worker hands in for one round."""

    verdict: Verdict
    confidence: float
    prose: str
    output: Any
    files: tuple[str, ...]
    files_changed: tuple[str, ...]
    open_questions: tuple[str, ...]
    reflection: ReflectionDocument | None


# --- The contract ---------------------------------------------------------------------------------


def write_contract(contract: Contract) -> dict[str, Any]:
    """The contract as JSON values."""
    return {
        "schema": VERSION,
        "id": contract.id,
        "ticket": contract.ticket,
        "kind": contract.kind.value,
        "attempt": contract.attempt,
        "command": contract.command,
        "digest": contract.digest,
        "task": contract.task,
        "inputs": {
            "args": exact(dict(contract.args)),
            "pipeline_output": exact(contract.pipeline_output),
        },
        "directory": contract.directory,
        "workplace": contract.workplace,
        "project": contract.project,
        "write_set": list(contract.write_set),
        "budget": {**asdict(contract.budget), "timeout": contract.timeout},
        "success": criteria(contract.success),
        "worker": contract.worker,
        "evaluator": contract.evaluator,
        "evaluator_digest": contract.evaluator_digest,
    }


def criteria(success: Success) -> dict[str, Any]:
    """What counts as a success, as JSON values."""
    return {
        "output_schema": exact(success.output_schema),
        "mode": success.mode,
        "files": success.files,
    }


_CONTRACT_KEYS = (
    *("schema", "id", "ticket", "kind", "attempt", "command", "digest", "task", "inputs"),
    *("directory", "workplace", "project", "write_set", "budget", "success"),
    *("worker", "evaluator", "evaluator_digest"),
)


class _Version(StrEnum):
    ONE = VERSION


class _Mode(StrEnum):
    PROCESS = "process"
    PASSTHROUGH = "passthrough"


def read_contract(document: Any) -> Contract:
    """The contract that a document is; ContractInvalid names the place that is not as it must be.

    A result or a reflection is no contract: neither has its keys.
    """
    at = Place(document).members(required=_CONTRACT_KEYS)
    at["schema"].choice(_Version)
    inputs = at["inputs"].members(required=("args", "pipeline_output"))
    return Contract(
        id=at["id"].text(most=64),
        ticket=at["ticket"].text(most=64),
        kind=at["kind"].choice(Kind),
        attempt=at["attempt"].integer(least=1, most=1_000_000),
        command=at["command"].text(most=64),
        digest=at["digest"].text(most=64, blank=True),
        task=at["task"].text(most=MAX_TASK),
        args=inputs["args"].json_object(),
        pipeline_output=inputs["pipeline_output"].json(depth=MAX_DEPTH + 4),
        directory=at["directory"].text(most=4_096, blank=True),
        workplace=at["workplace"].text(most=4_096, blank=True),
        project=at["project"].text(most=64, blank=True),
        write_set=at["write_set"].relative_paths(most=MAX_WRITE_SET),
        success=_read_success(at["success"]),
        worker=at["worker"].text(most=200),
        evaluator=at["evaluator"].text(most=200),
        evaluator_digest=at["evaluator_digest"].text(most=64),
        **_read_budget(at["budget"]),
    )


def _read_budget(place: Place) -> dict[str, Any]:
    at = place.members(
        required=("rounds", "reflection_after_each", "max_usd", "max_turns", "timeout")
    )
    budget = Budget(
        rounds=at["rounds"].integer(least=1, most=100),
        reflection_after_each=at["reflection_after_each"].boolean(),
        max_usd=at["max_usd"].number(least=0.0, most=10_000.0),
        max_turns=at["max_turns"].integer(least=1, most=10_000),
    )
    return {"budget": budget, "timeout": at["timeout"].number(least=0.0, most=10_000_000.0)}


def _read_success(place: Place) -> Success:
    at = place.members(required=("output_schema", "mode", "files"))
    form = at["output_schema"]
    if form.value is not None and form.value != "text" and not isinstance(form.value, Mapping):
        form.refuse(DocumentRule.WRONG_TYPE, "must be null, text or a JSON Schema")
    return Success(form.json(), at["mode"].choice(_Mode).value, at["files"].boolean())


def digest(document: Mapping[str, Any]) -> str:
    """SHA-256 over a document of a mission, the same after any database has kept it."""
    form = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(form.encode()).hexdigest()


def exact(value: Any) -> Any:
    """The same JSON value, its numbers written as every database gives them back.

    PostgreSQL returns `1e16` without its exponent, which makes it a whole number, and knows no
    negative zero.
    """
    if isinstance(value, Mapping):
        return {name: exact(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [exact(inner) for inner in value]
    if isinstance(value, float) and abs(value) >= 1e16 and value.is_integer():
        return int(value)
    return 0.0 if isinstance(value, float) and value == 0.0 else value


# --- What a worker hands in -----------------------------------------------------------------------


def read_result(document: Any, contract: Contract) -> ResultDocument:
    """A worker's result under its contract; ContractInvalid names the place and the rule.

    An output is held against the command's schema where the round is said to have passed; a failed
    one's is kept as it is, within the same bounds.
    """
    at = Place(document).members(
        required=("verdict", "confidence", "prose"),
        optional=("output", "files", "files_changed", "open_questions", "reflection"),
        stamped=STAMPED,
    )
    verdict = at["verdict"].choice(Verdict)
    files = _read_files(at.get("files"), contract)
    return ResultDocument(
        verdict=verdict,
        confidence=at["confidence"].number(least=0.0, most=1.0),
        prose=at["prose"].text(most=MAX_PROSE),
        output=_read_output(Place(document), at.get("output"), contract, verdict),
        files=files,
        files_changed=_read_changed(at.get("files_changed"), contract, files),
        open_questions=_read_lines(at.get("open_questions"), most=MAX_QUESTIONS),
        reflection=_read_own_reflection(Place(document), at.get("reflection"), contract),
    )


def read_reflection(document: Any) -> ReflectionDocument:
    """A look back, handed in by itself."""
    return _read_reflection(Place(document))


def _read_reflection(place: Place) -> ReflectionDocument:
    at = place.members(
        required=("converging", "signals", "recommendation", "reason"), stamped=STAMPED
    )
    return ReflectionDocument(
        converging=at["converging"].boolean(),
        signals=_read_lines(at["signals"], most=MAX_SIGNALS),
        recommendation=at["recommendation"].choice(Recommendation),
        reason=at["reason"].text(most=MAX_REASON),
    )


def _read_own_reflection(
    root: Place, place: Place | None, contract: Contract
) -> ReflectionDocument | None:
    if place is not None:
        return _read_reflection(place)
    if contract.budget.reflection_after_each:
        Place(None, "reflection", root).refuse(
            DocumentRule.REFLECTION_REQUIRED, "is required: this mission reflects after each round"
        )
    return None


def _read_lines(place: Place | None, *, most: int) -> tuple[str, ...]:
    if place is None:
        return ()
    return tuple(entry.text(most=MAX_LINE) for entry in place.items(most=most))


def _read_files(place: Place | None, contract: Contract) -> tuple[str, ...]:
    if place is None:
        return ()
    files = place.relative_paths(most=MAX_FILES)
    if files and not contract.success.files:
        place.refuse(
            DocumentRule.FILES_NOT_DECLARED, f"names files, but {contract.command} returns none"
        )
    return files


def _read_changed(
    place: Place | None, contract: Contract, files: tuple[str, ...]
) -> tuple[str, ...]:
    if place is None:
        return ()
    changed = place.relative_paths(most=MAX_CHANGED)
    for entry in place.items(most=MAX_CHANGED):
        if not contract.permits(entry.value, files):
            entry.refuse(
                DocumentRule.OUTSIDE_WRITE_SET,
                f"names {entry.value!r}, which is not inside the write set",
            )
    return changed


def _read_output(root: Place, place: Place | None, contract: Contract, verdict: Verdict) -> Any:
    form = contract.success
    if place is None:
        needed = form.mode == "process" or form.output_schema is not None
        if verdict is Verdict.PASS and needed:
            Place(None, "output", root).refuse(
                DocumentRule.MISSING_KEY, f"is required: {contract.command} has an output"
            )
        return None
    value = exact(place.json(depth=pipes.MAX_DEPTH))
    size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
    if size > pipes.MAX_OUTPUT_BYTES:
        place.refuse(
            DocumentRule.TOO_LARGE, f"has {size} bytes; {pipes.MAX_OUTPUT_BYTES} are taken"
        )
    if verdict is Verdict.PASS:
        _check_form(place, value, form.output_schema)
    return value


def _check_form(place: Place, value: Any, form: Any) -> None:
    if form is None:
        return
    if form == "text":
        if not isinstance(value, str):
            place.refuse(DocumentRule.OUTPUT, "must be text")
        return
    try:
        schema.check_output(value, form)
    except OutputInvalid as error:
        inner = f": {error.field}" if error.field else ""
        place.refuse(
            DocumentRule.OUTPUT, f"does not match the command's schema{inner}: {error.detail}"
        )

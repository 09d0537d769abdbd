"""What runners share: a child's environment, and how a child's end becomes a stage's result."""

from __future__ import annotations

from guards import secrets
from guards.process import ProcessResult
from pipelines.types import CommandSpec, RunResult

#: How much of a child's standard error is kept for the operator, in characters.
STDERR_SHOWN = 8_000


def environment(spec: CommandSpec) -> dict[str, str]:
    """The declared variables, resolved now; SecretUnavailable when one does not resolve."""
    return {
        name: secrets.resolve(reference).reveal() for name, reference in spec.environment.items()
    }


def result_of(ended: ProcessResult, *, timeout: float) -> RunResult:
    """A child's end as a stage's result: exit 0, within its time and its size, is success."""
    stderr = ended.stderr.decode("utf-8", "replace").replace("\0", "\ufffd")[-STDERR_SHOWN:]
    error = _error(ended, timeout)
    return RunResult(
        ok=not error,
        output=ended.stdout,
        exit_code=ended.exit_code,
        error=error,
        stderr=stderr,
    )


def _error(ended: ProcessResult, timeout: float) -> str:
    if ended.timed_out:
        return f"it took longer than {timeout:.0f} seconds and was ended"
    if ended.overflowed:
        return "it wrote more than 1 MB and was ended"
    if ended.exit_code != 0:
        return f"it ended with exit code {ended.exit_code}"
    return ""

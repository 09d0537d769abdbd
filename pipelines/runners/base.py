"""What runners share: a child's environment, and how a child's end becomes a stage's result."""

from __future__ import annotations

from guards import secrets
from guards.process import ProcessResult, end_marked
from pipelines.types import Job, RunResult

#: How much of a child's standard error is kept for the operator, in characters.
STDERR_SHOWN = 8_000


#: The variable by which recovery knows the children of a pipeline, whoever their parent is.
MARK = "COUNTERSIGN_PIPELINE"

#: The HOME of a cli stage: none.
NOBODYS_HOME = "/nonexistent"

#: The variable that says where a stage leaves its files.
DIRECTORY = "COUNTERSIGN_DIRECTORY"


def environment(job: Job) -> dict[str, str]:
    """The declared variables, resolved now, and the pipeline's mark.

    SecretUnavailable when one does not resolve.
    """
    declared = job.spec.environment.items()
    resolved = {name: secrets.resolve(reference).reveal() for name, reference in declared}
    return {**resolved, MARK: job.pipeline}


def places(job: Job) -> dict[str, str]:
    """Where a stage leaves its files, and no HOME.

    What mail and earlier stages have put into a directory must not be read as somebody's
    configuration: a `.gitconfig` or `.curlrc` there would run what it names.
    """
    if job.directory is None:
        return {}
    return {DIRECTORY: str(job.directory), "HOME": NOBODYS_HOME}


def end_children(pipeline: str) -> int:
    """Kill what an interrupted pipeline's stages have left running on this host; how many."""
    return end_marked(MARK, pipeline)


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

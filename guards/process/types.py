"""What a child process may use, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

#: Standard output above this ends the process: half an answer is no answer.
MAX_OUTPUT = 1_000_000

#: How much of the end of standard error is kept, in bytes.
MAX_STDERR = 64 * 1024


#: Gets standard output chunk by chunk, which is then not kept. It answers how many seconds what
#: still runs may take from now on, or None: as long as the time limit says.
Follower = Callable[[bytes], float | None]


@dataclass(frozen=True, slots=True)
class Limits:
    """Resource limits of a child, set before its program starts. None is unlimited.

    `cpu_seconds` None follows from the time limit. Sizes are in bytes; `memory` is address space.
    """

    cpu_seconds: int | None = None
    memory: int | None = 16 * 1024**3
    file_size: int | None = 1024**3
    open_files: int | None = 1024


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """How a run ended. `duration` is in seconds; `stderr` is the tail of standard error.

    `exit_code` is negative for a signal. Of several steps it is that of the first that failed, and
    `failed_step` is its index. `timed_out` and `overflowed` say why the group was killed;
    `cut_short` that it was because whoever followed the output had all that was wanted. `is_lost`:
    its supervisor was killed, so that something of it may still run.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool
    overflowed: bool
    duration: float
    failed_step: int | None = None
    cut_short: bool = False
    is_lost: bool = False

    @property
    def succeeded(self) -> bool:
        """Whether all of it ran to its end with exit code 0."""
        return self.exit_code == 0 and not self.timed_out and not self.overflowed

"""Child processes: argv only, allowed programs only, bounded in every way, never left behind.

`run` and `run_steps` start and finish them (`Several` those of several runs beside each other),
`resolve_binary` says which programs may run,
`this_process` and `is_dead` let a lease be taken over only from a worker that is provably dead.
"""

from __future__ import annotations

from guards.process.binaries import resolve_binary
from guards.process.liveness import is_dead, reference_of, this_process
from guards.process.running import run, run_steps
from guards.process.session import Session
from guards.process.several import Several
from guards.process.survivors import end_marked
from guards.process.types import MAX_OUTPUT, Follower, Limits, ProcessResult

__all__ = [
    "MAX_OUTPUT",
    "Follower",
    "Limits",
    "ProcessResult",
    "Session",
    "Several",
    "end_marked",
    "is_dead",
    "reference_of",
    "resolve_binary",
    "run",
    "run_steps",
    "this_process",
]

"""Ending what a run has left where its supervisor could not.

A supervisor ends all that its run has started, also when the worker dies. Where it was killed, too,
a variable that only one run's children inherit marks them, whoever their parent is by now.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PROCESSES = Path("/proc")

#: Looks at most: what is stopped may have forked while we looked.
_ROUNDS = 5


def end_marked(name: str, value: str) -> int:
    """Kill every process of this host that has this variable in its environment; how many.

    For recovery, with a value that no other run has. 0 where the system does not tell, and never
    this process itself.
    """
    mark = f"{name}={value}".encode()
    stopped: set[int] = set()
    for _ in range(_ROUNDS):
        found = set(_marked(mark)) - stopped
        if not found:
            break
        _signal(found, signal.SIGSTOP)  # first: a script must not go on when its child has died
        stopped |= found
    _signal(stopped, signal.SIGKILL)
    return len(stopped)


def _signal(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _marked(mark: bytes) -> Iterator[int]:
    for entry in _PROCESSES.glob("[0-9]*"):
        if int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name)

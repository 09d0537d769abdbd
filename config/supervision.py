"""Keeps the processes of one installation running: starts them, restarts what dies, stops them all.

Every child has a session of its own, so that Ctrl-C at the terminal reaches the supervisor only: a
signal to the whole of a worker's group would kill what should end in order. A child's own children
never outlive it: its session is killed when its main process has ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

BASE_DIR = Path(__file__).resolve().parent.parent
_TETHER = Path(__file__).resolve().parent / "tether.py"

#: Seconds a child gets between SIGTERM and SIGKILL.
GRACE = 8.0
#: Seconds to wait before the first restart; doubled for each further one, at most `_LONGEST_WAIT`.
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0
#: A child that ran this long was well: its next restart waits the shortest time again.
_WELL_AFTER = 30.0

Say = Callable[[str], None]


@dataclass(slots=True)
class Child:
    """One long-lived `manage.py` command. One that others need `outlives` them at the end."""

    name: str
    command: Sequence[str]
    outlives: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    output: IO[bytes] | None = None
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    wait: float = _FIRST_WAIT
    next_start: float = 0.0

    def start(self) -> None:
        """Start it, in a session of its own, tied to this process."""
        self.started_at = time.monotonic()
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-S", str(_TETHER), str(os.getpid())),
                *(sys.executable, str(BASE_DIR / "manage.py"), *self.command),
            ],
            cwd=BASE_DIR,
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=self.output,
            start_new_session=True,
        )

    def is_running(self) -> bool:
        """Whether its main process is alive."""
        return self.process is not None and self.process.poll() is None

    def ask_to_stop(self) -> None:
        """SIGTERM to its main process only."""
        if self.process is not None and self.is_running():
            self.process.terminate()

    def end(self) -> None:
        """SIGKILL to whatever is left of its session."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait_for_end(self, until: float) -> None:
        """Wait for its main process until then (monotonic seconds), and end what is left."""
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(max(0.0, until - time.monotonic()))
        self.end()


class Supervisor:
    """Several children. `say` takes one line for the operator."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self.children: list[Child] = []

    def start(self, child: Child) -> Child:
        """Start a child and look after it from now on."""
        self.children.append(child)
        child.start()
        return child

    def tend(self) -> None:
        """Restart what has ended, each with its own growing wait. Call it a few times a second."""
        now = time.monotonic()
        for child in self.children:
            if child.is_running():
                continue
            if not child.next_start:
                self._note_death(child, now)
            elif now >= child.next_start:
                child.next_start = 0.0
                child.start()
                self._say(f"{child.name} started again")

    def _note_death(self, child: Child, now: float) -> None:
        child.end()
        code = child.process.returncode if child.process else None
        if now - child.started_at > _WELL_AFTER:
            child.wait = _FIRST_WAIT
        self._say(f"{child.name} ended ({_how(code)}); starting it again in {child.wait:g} s")
        child.next_start = now + child.wait
        child.wait = min(child.wait * 2, _LONGEST_WAIT)

    def stop(self, child: Child) -> None:
        """Stop one child and forget it."""
        self.children.remove(child)
        child.ask_to_stop()
        child.wait_for_end(time.monotonic() + GRACE)

    def stop_all(self) -> None:
        """Ask every child to stop, give them `GRACE` seconds together, end what is left."""
        until = time.monotonic() + GRACE
        for outlives in (False, True):
            leaving = [child for child in self.children if child.outlives is outlives]
            for child in leaving:
                child.ask_to_stop()
            for child in leaving:
                child.wait_for_end(until)
        self.children.clear()


def _how(code: int | None) -> str:
    if code is None:
        return "unknown"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"by {signal.Signals(-code).name}"
    return f"exit code {code}"


def run_to_end(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, bytes]:
    """Run a Python module or file to its end; its exit code and standard output.

    Its standard error is ours. SIGTERM and Ctrl-C are passed on, and it may take its time to end.
    """
    process = subprocess.Popen(
        [
            *(sys.executable, "-S", str(_TETHER), str(os.getpid())),
            *(sys.executable, *command),
        ],
        cwd=BASE_DIR,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    previous = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        while True:
            try:
                output, _ = process.communicate()
                return process.returncode, output
            except KeyboardInterrupt:
                process.terminate()
    finally:
        signal.signal(signal.SIGTERM, previous)

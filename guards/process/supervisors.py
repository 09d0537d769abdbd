"""The supervisors of this process: one for each run at a time, kept for the next ones.

A supervisor (`supervisor`, a process of its own) has limits that nobody can raise again, so it is
kept by them. It is started without our environment, away from our terminal and our directory.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from guards.exceptions import ProcessFailed
from guards.process import supervisor

_CODE = (
    f"import sys; sys.path.append({str(Path(__file__).parent)!r}); import supervisor; "
    "supervisor.main()"
)
#: How many wait for their next run at most: the ones that waited longest leave.
_KEPT = 12
#: How long an answer may take, in seconds. What is killed has ten to be gone.
_PATIENCE = 30.0
#: Whoever has said nothing for so long where an answer is due may have been stopped, in seconds.
_STOPPED_SECONDS = 0.5


class Supervisor:
    """Our end of one. It has at most one run in hand."""

    def __init__(self, limits: str) -> None:
        self.limits = limits
        self._channel, theirs = socket.socketpair()
        self._channel.settimeout(_PATIENCE)
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _CODE, str(number), limits],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
                pass_fds=[number],
            )
        self._heard = bytearray()
        self._answers: deque[tuple[str, int]] = deque()
        self._in_hand = 0
        self._is_fit = True
        #: The pids of all that it has started, whether anybody has asked for them or not.
        self.started: set[int] = set()
        #: The exit codes of those that have ended, by their pids (negative: a signal).
        self.codes: dict[int, int] = {}

    def fileno(self) -> int:
        """The descriptor on which ends are announced."""
        return self._channel.fileno()

    @property
    def is_idle(self) -> bool:
        """Whether it is there, and has nothing to say: its last run is over."""
        return self._is_fit and not self._heard and not self._has_said(0.0)

    @property
    def is_over(self) -> bool:
        """Whether all that it has started has ended, and nothing of it is left."""
        return self._in_hand == 0

    def order(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        directory: str,
        files: Sequence[int],
        numbers: Sequence[int],
        is_last: bool,
        adopts: bool,
    ) -> None:
        """Have a program started, whose name is a full path; `answer` tells what came of it.

        `files` are its standard ones and those that it gets as `numbers`. `is_last`: no other one
        follows in this run. `adopts`: what it leaves behind ends with the run.
        """
        environment = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
        vector = [os.fsencode(word) for word in argv]
        order = (vector, environment, os.fsencode(directory), list(numbers), is_last, adopts)
        self._send(supervisor.write(("start", *order)), files)
        self._in_hand += 1

    def answer(self) -> int:
        """The pid of the next one that was ordered; OSError says why it does not start."""
        while not self._answers:
            self._hear()
            self._take_all()
        word, said = self._answers.popleft()
        if word == "refused":
            raise OSError(said, os.strerror(said))
        return said

    def listen(self, seconds: float = 0.0) -> None:
        """Take in what it says of ends, once it says something, for so long at most."""
        self._take_all()
        if self._in_hand and self._has_said(seconds):
            self._hear()
            self._take_all()

    def kill(self) -> None:
        """Kill the groups of all that run. Their ends are announced."""
        if self._in_hand:
            self._send(supervisor.write(("kill",)))

    def end(self) -> None:
        """Kill all that is left of the run, also what has left its session; `codes` says how.

        Returns once it is gone.
        """
        self._take_all()
        if self._in_hand:
            self._go_on()
            self._send(supervisor.write(("end",)))
        while self._in_hand:
            self._hear()
            self._take_all()

    def forget(self) -> None:
        """The run is over: what was said of it is of no use to the next one."""
        self.codes, self.started = {}, set()
        self._answers.clear()

    def close(self) -> subprocess.Popen[bytes]:
        """Close the channel: it ends what it has, and itself. Its process, to be waited for."""
        self._channel.close()
        return self._process

    # --- the channel ------------------------------------------------------------------------------

    def _has_said(self, seconds: float) -> bool:
        waiting = select.poll()
        waiting.register(self._channel, select.POLLIN)
        return bool(waiting.poll(seconds * 1000))

    def _send(self, text: bytes, files: Sequence[int] = ()) -> None:
        try:
            sent = socket.send_fds(self._channel, [text], files) if files else 0
            self._channel.sendall(text[sent:])
        except OSError as error:
            self._lose(error)

    def _go_on(self) -> None:
        """A child may have stopped it."""
        with suppress(OSError):
            self._process.send_signal(signal.SIGCONT)

    def _hear(self) -> None:
        until = time.monotonic() + _PATIENCE
        while not self._has_said(_STOPPED_SECONDS):
            if time.monotonic() > until:
                self._lose(None)
            self._go_on()
        try:
            heard = self._channel.recv(65536)
        except OSError as error:
            self._lose(error)
        if not heard:
            self._lose(None)
        self._heard += heard

    def _hear_the_rest(self) -> None:
        """What it has said already: whom it had started is ours to end then."""
        with suppress(OSError):
            while self._has_said(0.0) and (heard := self._channel.recv(65536)):
                self._heard += heard
        self._take_all()

    def _take_all(self) -> None:
        while (message := self._next()) is not None:
            self._take(message)

    def _next(self) -> supervisor.Message | None:
        head = supervisor.LENGTH
        length = head + int.from_bytes(self._heard[:head], "little")
        if len(self._heard) < max(length, head + 1):
            return None
        message = supervisor.read(bytes(self._heard[head:length]))
        del self._heard[:length]
        return message

    def _take(self, message: supervisor.Message) -> None:
        word, *said = message
        if word == "ended":
            pid, self.codes[pid] = said
        elif word == "over":
            codes, self._is_fit = said
            self.codes.update(codes)
            self._in_hand = 0
        else:
            self._answers.append((word, *said))
            self._in_hand -= word == "refused"
            self.started |= {*said} if word == "started" else set()

    def _lose(self, error: OSError | None) -> NoReturn:
        """It is gone, or does not answer: it then sees its channel closed, and ends what it has."""
        self._hear_the_rest()
        self._is_fit = False
        self._in_hand = 0
        self._answers.clear()
        with suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)
        self._go_on()
        raise ProcessFailed("the supervisor of its processes has ended") from error


class _Pool:
    """All of this process: at work, and idle until their next run, the latest last."""

    def __init__(self) -> None:
        #: Also while our process is copied: none is just being made then, of which the copy knows
        #: nothing and whose channel it would keep open.
        self.changing = threading.RLock()
        self._at_work: list[Supervisor] = []
        self._idle: list[Supervisor] = []
        self._leaving: list[subprocess.Popen[bytes]] = []

    def take(self, limits: str) -> Supervisor:
        with self.changing:
            one = self._take_idle(limits) or Supervisor(limits)
            self._at_work.append(one)
        return one

    def _take_idle(self, limits: str) -> Supervisor | None:
        for one in reversed(self._idle):
            if one.limits == limits:
                self._idle.remove(one)
                if one.is_idle:
                    return one
                self._close(one)
        return None

    def give_back(self, one: Supervisor) -> None:
        with self.changing:
            self._at_work.remove(one)
            if one.is_over and one.is_idle:
                one.forget()
                self._idle.append(one)
            else:
                self._close(one)
            while len(self._idle) > _KEPT:
                self._close(self._idle.pop(0))

    def _close(self, one: Supervisor) -> None:
        self._leaving = [left for left in [*self._leaving, one.close()] if left.poll() is None]

    def forget(self) -> None:
        """In a copy of our process: they are the original's, and must see when it has died."""
        for one in (*self._idle, *self._at_work):
            one.close().returncode = 0
        for process in self._leaving:
            process.returncode = 0


_pool = _Pool()


def _begin_anew() -> None:
    global _pool
    _pool.forget()
    _pool = _Pool()


os.register_at_fork(
    before=lambda: _pool.changing.acquire(),
    after_in_parent=lambda: _pool.changing.release(),
    after_in_child=_begin_anew,
)


def take(limits: str) -> Supervisor:
    """One for a run, with these limits (`name=value,…`); ProcessFailed where none starts."""
    try:
        return _pool.take(limits)
    except OSError as error:
        raise ProcessFailed(f"no program can be started: {error.strerror}") from error


def give_back(one: Supervisor) -> None:
    """Its run is over. One that has had enough, or is not well, ends."""
    _pool.give_back(one)

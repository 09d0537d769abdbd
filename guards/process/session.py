"""One run: its children, the pipes to and from them, and the loop that serves both.

No thread per pipe and no `communicate()`: output is counted while it is read, so that a program
that never stops writing is stopped, and what it wrote before its end is never lost.
"""

from __future__ import annotations

import fcntl
import os
import selectors
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from guards.exceptions import ProcessFailed
from guards.process import supervisors
from guards.process.supervisors import Supervisor
from guards.process.types import MAX_STDERR, Follower, ProcessResult

_CHUNK = 256 * 1024
#: The size that we ask for a pipe with much to carry, in bytes: Linux gives so much to anybody.
_WIDE = 1024 * 1024
#: Input that the usual pipe takes at once.
_NARROW = 64 * 1024
#: How long descendants that hold the output open may still write after all children ended.
_DRAIN_SECONDS = 0.2
#: How long the step behind a broken pipe may take to end, if that is why the pipe broke.
_CAUSE_SECONDS = 0.05


class Session:
    """The children of one run. Use: add and connect, `watch`, always `end`, then `result`.

    With a `selector` that others use too, whoever has that serves all of them (`several`).
    """

    def __init__(
        self,
        stdin: bytes,
        *,
        max_output: int,
        timeout: float,
        follow: Follower | None = None,
        selector: selectors.BaseSelector | None = None,
    ) -> None:
        self._began = time.monotonic()
        self._deadline = self._began + timeout
        self._is_alone = selector is None
        self._selector = selector or selectors.DefaultSelector()
        self._open: dict[int, Callable[[int], object]] = {}
        self._input = memoryview(stdin)
        self._max_output = max_output
        self._follow = follow
        self._stdout: list[bytes] = []
        self._written = 0
        self._stderr = bytearray()
        self._supervisor: Supervisor | None = None
        self._channel = -1
        self._is_lost = False
        self._is_ended = False
        self._children: list[int] = []
        self._codes: list[int | None] = []
        self._timed_out = False
        self._satisfied = False
        self._cut_short = False
        self._overflowed = False
        self._killed = False
        self._blame: int | None = None

    def obey(self, supervisor: Supervisor) -> None:
        """This one starts its children, and tells of their ends."""
        self._supervisor = supervisor
        self._channel = supervisor.fileno()
        self._selector.register(self._channel, selectors.EVENT_READ, self)

    @property
    def supervisor(self) -> Supervisor:
        """Whom it has its children from."""
        assert self._supervisor is not None  # noqa: S101 - whoever has children has one
        return self._supervisor

    def add(self, pid: int) -> None:
        """Take a started child in."""
        self._children.append(pid)
        self._codes.append(None)
        self._listen()  # its end may have been told with its start

    def feed_into(self, descriptor: int) -> None:
        """Write the input here."""
        if len(self._input) > _NARROW:
            _widen(descriptor)
        self._serve(descriptor, selectors.EVENT_WRITE, self._feed)

    def read_output_from(self, descriptor: int) -> None:
        """The result arrives here."""
        _widen(descriptor)
        self._serve(descriptor, selectors.EVENT_READ, self._take_output)

    def read_errors_from(self, descriptor: int) -> None:
        """What all children complain arrives here."""
        self._serve(descriptor, selectors.EVENT_READ, self._take_errors)

    def _serve(self, descriptor: int, events: int, serve: Callable[[int], object]) -> None:
        os.set_blocking(descriptor, False)
        self._open[descriptor] = serve
        self._selector.register(descriptor, events, self)

    def _close(self, descriptor: int) -> None:
        del self._open[descriptor]
        self._selector.unregister(descriptor)
        os.close(descriptor)

    def watch(self) -> None:
        """Serve the pipes until all ended and all is read, or until a limit is met."""
        while not self.is_over():
            for key, _ in self._selector.select(self.patience):
                self.serve(key.fd)
            self.look_for_ends()

    @property
    def patience(self) -> float:
        """How long to wait for a descriptor before looking again, in seconds."""
        return max(0.0, self._deadline - time.monotonic())

    def serve(self, descriptor: int) -> None:
        """One of its descriptors is ready; nothing, where it was closed meanwhile."""
        if descriptor == self._channel:
            self._listen()
        elif (serve := self._open.get(descriptor)) is not None:
            serve(descriptor)

    def _listen(self, seconds: float = 0.0) -> None:
        """Take in who has ended. Once the supervisor is lost, nobody can know of the others."""
        try:
            self.supervisor.listen(seconds)
        except ProcessFailed:
            self._is_lost = True
        known = self.supervisor.codes
        self._codes = [
            known.get(pid) if code is None else code
            for pid, code in zip(self._children, self._codes, strict=True)
        ]

    def is_over(self) -> bool:
        """Whether all ended and all is read, or a limit was met, which it notes."""
        if not (self._open or None in self._codes) or self._overflowed or self._is_lost:
            return True
        if self._deadline > time.monotonic():
            return False
        unfinished = None in self._codes and not self._killed
        self._cut_short = unfinished and self._satisfied
        self._timed_out = unfinished and not self._satisfied
        return True

    def look_for_ends(self) -> None:
        """A failure cancels all, and after the last end only a drain remains."""
        if self._is_ended:
            return
        if self._blame is None and (failed := self._first_failure()) is not None:
            self._blame = self._cause_of(failed)
            self._kill_groups()
            self._shorten()
        if None not in self._codes:
            self._is_ended = True
            self._shorten()

    def _shorten(self, seconds: float = _DRAIN_SECONDS) -> None:
        self._deadline = min(self._deadline, time.monotonic() + seconds)

    def _cause_of(self, failed: int) -> int:
        """The step to blame: whoever closed a pipe by failing may end a moment after its victim."""
        running = [at for at, code in enumerate(self._codes) if code is None and at > failed]
        if self._codes[failed] != -signal.SIGPIPE or not running:
            return failed
        until = time.monotonic() + _CAUSE_SECONDS
        while self._codes[running[0]] is None and (left := until - time.monotonic()) > 0:
            self._listen(left)
            if self._is_lost:
                break
        found = self._first_failure()
        return failed if found is None else found

    def _first_failure(self) -> int | None:
        """The step to blame: the first that failed by itself; a broken pipe is a consequence."""
        failed = [index for index, code in enumerate(self._codes) if code]
        causes = [index for index in failed if self._codes[index] != -signal.SIGPIPE]
        return next(iter(causes or failed), None)

    def _feed(self, descriptor: int) -> None:
        try:
            if self._input:
                self._input = self._input[os.write(descriptor, self._input) :]
        except BlockingIOError:
            return
        except OSError:  # nobody reads it any more, which is the reader's choice
            self._input = self._input[:0]
        if not self._input:
            self._close(descriptor)

    def _take_output(self, descriptor: int) -> bool:
        chunk = self._read(descriptor)
        if chunk:
            self._written += len(chunk)
            self._overflowed = self._written > self._max_output
            self._keep(chunk)
        return bool(chunk) and not self._overflowed

    def _keep(self, chunk: bytes) -> None:
        if self._follow is None:
            self._stdout.append(chunk)
            return
        seconds = self._follow(chunk)
        if seconds is not None:
            self._satisfied = True
            self._shorten(seconds)

    def _take_errors(self, descriptor: int) -> bool:
        chunk = self._read(descriptor)
        self._stderr += chunk or b""
        del self._stderr[:-MAX_STDERR]
        return bool(chunk)

    def _read(self, descriptor: int) -> bytes | None:
        """What is there, b"" at the end (then it is closed), None when nothing is there yet."""
        try:
            chunk = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return None
        if not chunk:
            self._close(descriptor)
        return chunk

    def end(self) -> None:
        """Kill every group, read what was already written, reap, and close everything."""
        if self._supervisor is not None:
            self._dismiss(self._supervisor)
        for descriptor, serve in list(self._open.items()):
            # No more than a pipe holds: what outlives a lost supervisor may write for ever.
            for _ in range(_WIDE // _CHUNK + 1):
                if serve == self._feed or not serve(descriptor):
                    break
        for descriptor in list(self._open):
            self._close(descriptor)
        if self._is_alone:
            self._selector.close()

    def _dismiss(self, supervisor: Supervisor) -> None:
        """Have it end all that is left, and let it go."""
        self._killed = True
        try:
            supervisor.end()
        except ProcessFailed:
            self._is_lost = True
        for pid in supervisor.started - supervisor.codes.keys():
            _kill_group(pid)  # a supervisor that is lost has said nothing of it
        for index, pid in enumerate(self._children):
            code = supervisor.codes.get(pid)
            if self._codes[index] is None:
                self._codes[index] = -signal.SIGKILL if code is None else code
        self._selector.unregister(self._channel)
        supervisors.give_back(supervisor)

    def _kill_groups(self) -> None:
        self._killed = True
        with suppress(ProcessFailed):
            if self._supervisor is not None:
                self._supervisor.kill()

    def result(self) -> ProcessResult:
        """How it ended; call it after `end`."""
        failed = self._blame if self._blame is not None else self._first_failure()
        return ProcessResult(
            exit_code=0 if failed is None else self._codes[failed] or 0,
            stdout=b"".join(self._stdout)[: self._max_output],
            stderr=bytes(self._stderr),
            timed_out=self._timed_out,
            overflowed=self._overflowed,
            duration=time.monotonic() - self._began,
            failed_step=failed,
            cut_short=self._cut_short,
            is_lost=self._is_lost,
        )


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _widen(descriptor: int) -> None:
    """Let a pipe carry much at once: a megabyte then takes no more turns than a line."""
    with suppress(AttributeError, OSError):  # not Linux, or this account has too many wide ones
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _WIDE)

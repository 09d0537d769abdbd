"""A gpgv that is already started and waits for its signature, so that nobody waits for its start.

A third of a verification is the start of the program. So each process that verifies more than once
keeps one gpgv ready: it has read nothing yet and blocks on its standard input. The keyring and the
text are put into its anonymous files, then the signature into its input. It serves one signature
and ends. When its owner dies in any way the input closes, and it ends by itself: no survivors.

What it calls good is good. Anything else is asked again of a gpgv that had its files from the
start, so that no refusal can come from how a version of gpgv reads them.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import threading
import time
from contextlib import ExitStack, suppress

from guards.exceptions import OpenPGPUnavailable
from guards.openpgp.base import TIMEOUT
from guards.openpgp.invocation import (
    Invocation,
    find_program,
    finish,
    open_file,
    start,
)
from guards.process.waiting import exit_code_of

_ARGUMENTS = ("--status-fd", "{status:fd}", "--keyring", "{keyring}", "-", "{signed}")

_GOOD = b"[GNUPG:] GOODSIG "

#: A prepared gpgv older than this is not used: the program may have been replaced.
_MAX_AGE_SECONDS = 300.0


class _Prepared:
    """One started gpgv and its files."""

    def __init__(self, program: str, *, keyring: bytes = b"", signed: bytes = b"") -> None:
        self.program = program
        self._stack = ExitStack()
        self._born = time.monotonic()
        try:
            self._files = {
                "status": open_file(self._stack),
                "keyring": open_file(self._stack, keyring),
                "signed": open_file(self._stack, signed),
            }
            self._child = start(
                [program, *_ARGUMENTS],
                self._files,
                stdin=subprocess.PIPE,
                environment={},
            )
        except BaseException:
            self._stack.close()
            raise
        if self._child.stdin is None:
            raise OpenPGPUnavailable("gpgv was started without an input")
        self._input = self._child.stdin

    def is_fit(self, program: str) -> bool:
        """Whether it is that program, young, and still waiting."""
        young = time.monotonic() - self._born < _MAX_AGE_SECONDS
        return young and program == self.program and exit_code_of(self._child.pid) is None

    def fill(self, keyring: bytes, signed: bytes) -> None:
        """Put its files there, before the signature: it waits for nothing else."""
        self._files["keyring"].write(keyring)
        self._files["signed"].write(signed)

    def begin(self, signature: bytes) -> None:
        """Let it begin."""
        with suppress(BrokenPipeError):  # its exit code and its silence will tell
            self._input.write(signature)
        with suppress(BrokenPipeError):
            self._input.close()

    def finish(self, timeout: float) -> Invocation:
        """Its end; OpenPGPUnavailable when that does not come in time."""
        with self._stack:
            exit_code = finish(self._child, "gpgv", timeout)
            return Invocation(exit_code, self._files["status"].read(), b"")

    def discard(self) -> None:
        """End it, and whatever it started, unused."""
        with self._stack, suppress(OpenPGPUnavailable):
            self._input.close()
            finish(self._child, "gpgv", 0)

    def forget(self) -> None:
        """In a forked process: it is our parent's, so only our copies of its files are closed."""
        self._stack.close()
        self._input.close()
        self._child.returncode = 0


_lock = threading.Lock()
_waiting: list[_Prepared] = []
_used_before = False


def run_gpgv(
    *, keyring: bytes, signature: bytes, signed: bytes, timeout: float = TIMEOUT
) -> Invocation:
    """One run of gpgv over one signature. OpenPGPUnavailable as in `invoke`."""
    program = find_program("gpgv")
    waiting = _take(program)
    if waiting is not None:
        waiting.fill(keyring, signed)
        done = _complete(waiting, signature, timeout)
        if _GOOD in done.status:
            return done
    return _complete(_Prepared(program, keyring=keyring, signed=signed), signature, timeout)


def _complete(prepared: _Prepared, signature: bytes, timeout: float) -> Invocation:
    try:
        prepared.begin(signature)
        _prepare_next(prepared.program)
    finally:
        done = prepared.finish(timeout)
    return done


def _take(program: str) -> _Prepared | None:
    with _lock:
        prepared = _waiting.pop() if _waiting else None
    if prepared is not None and not prepared.is_fit(program):
        prepared.discard()
        return None
    return prepared


def _prepare_next(program: str) -> None:
    """Start the next one while this one computes; not for a process that verifies only once."""
    global _used_before
    if _used_before and not _waiting:
        with suppress(OpenPGPUnavailable):
            prepared = _Prepared(program)
            with _lock:
                _waiting.append(prepared)
    _used_before = True


def release() -> None:
    """End the one that waits, if there is one."""
    with _lock:
        waiting = list(_waiting)
        _waiting.clear()
    for prepared in waiting:
        prepared.discard()


def _forget_after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    for prepared in _waiting:
        prepared.forget()
    _waiting.clear()


atexit.register(release)
os.register_at_fork(after_in_child=_forget_after_fork)

"""Waiting for a child's end without reaping it, so that its process group can be killed first."""

from __future__ import annotations

import os
import select
import time

_POLL_SECONDS = 0.01


def wait_for_exit(pid: int, timeout: float) -> bool:
    """Wait up to `timeout` seconds until the child `pid` has ended; False when it still runs.

    The child stays a zombie, so its process group cannot be given to anybody else meanwhile.
    """
    if hasattr(os, "pidfd_open"):
        descriptor = os.pidfd_open(pid)
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            return bool(poll.poll(max(timeout, 0) * 1000))
        finally:
            os.close(descriptor)
    deadline = time.monotonic() + timeout
    while exit_code_of(pid) is None:
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def exit_code_of(pid: int) -> int | None:
    """The exit code of our child `pid` (negative: a signal), None while it runs; not reaped."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

"""Whose turn it is to write, where the database lets one writer in at a time.

SQLite has a writer that comes second sleep for longer and longer (1, 2, 5, 10 … 100 ms) and wakes
it for nothing: two workers with short transactions then spend a quarter of their time asleep. So a
unit of work first waits here, for a lock on a file beside the database, and looks again after a
fraction of a millisecond. It is a courtesy, not a guard: whoever has no file or no more patience
goes on, and SQLite's own lock decides, as it does for writers who never ask. The turn ends with
the commit: what is done after it, such as a word to the queue, keeps nobody. The kernel frees the
lock of a process that dies.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper

#: How often a waiting writer looks, and how long it waits here at most, in seconds.
_LOOK_EVERY = 0.000_2
_PATIENCE = 0.25

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class Turn:
    """The right to write next; `descriptor` is None where nobody has to wait for it."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = descriptor

    @property
    def is_held(self) -> bool:
        """Whether there is something to give back."""
        return self._descriptor is not None

    def wait(self) -> None:
        """Until it is ours, or patience has ended."""
        if self._descriptor is None:
            return
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_LOOK_EVERY)
            except OSError:
                return  # a file system without locks
            else:
                return

    def give_back(self) -> None:
        """Let the next one write. A second time does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        with suppress(OSError):  # of a child that was forked meanwhile, closing it frees nothing
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


@contextmanager
def turn_to_write() -> Iterator[Turn]:
    """Hold the turn, or have waited for it long enough; nothing on a database with more writers."""
    turn = Turn(_opened(_path(connections[DEFAULT_DB_ALIAS])))
    try:
        turn.wait()
        yield turn
    finally:
        turn.give_back()


def _opened(path: str) -> int | None:
    try:
        return os.open(path, _FLAGS, 0o600) if path else None
    except OSError:
        return None


def _path(database: BaseDatabaseWrapper) -> str:
    """The lock's file; "" where there is no need of one."""
    if database.vendor != "sqlite" or database.in_atomic_block:
        return ""
    name = str(database.settings_dict["NAME"])
    return f"{name}-turn" if name.startswith("/") else ""

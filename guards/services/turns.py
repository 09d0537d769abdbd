"""Whose turn it is to write, where the database lets one writer in at a time.

SQLite has a writer that comes second sleep for longer and longer (1, 2, 5, 10 … 100 ms) and wakes
it for nothing: two workers with short transactions then spend a quarter of their time asleep. So a
unit of work first waits here, for a lock on a file beside the database, and looks again after a
fraction of a millisecond. It is a courtesy, not a guard: whoever has no file or no more patience
goes on, and SQLite's own lock decides, as it does for writers who never ask. The kernel frees the
lock of a process that dies.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper

#: How often a waiting writer looks, and how long it waits here at most, in seconds.
_LOOK_EVERY = 0.000_2
_PATIENCE = 0.25

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


@contextmanager
def turn_to_write() -> Iterator[None]:
    """Hold the turn, or have waited for it long enough; nothing on a database with more writers."""
    path = _path(connections[DEFAULT_DB_ALIAS])
    if not path:
        yield
        return
    try:
        descriptor = os.open(path, _FLAGS, 0o600)
    except OSError:
        yield
        return
    try:
        _wait(descriptor)
        yield
    finally:
        os.close(descriptor)


def _path(database: BaseDatabaseWrapper) -> str:
    """The lock's file; "" where there is no need of one."""
    if database.vendor != "sqlite" or database.in_atomic_block:
        return ""
    name = str(database.settings_dict["NAME"])
    return f"{name}-turn" if name.startswith("/") else ""


def _wait(descriptor: int) -> None:
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOOK_EVERY)
        except OSError:
            return  # a file system without locks
        else:
            return

"""Waking a sleeping worker the moment a task commits, so that it need not poll often.

On SQLite everybody is on one host: each listener binds a datagram socket in `DATA_DIR/run`, and a
sender knocks at all of them. On PostgreSQL it is LISTEN and NOTIFY, which the server itself sends
at commit. A wake-up is only a hint: one that is lost costs a poll interval, never a task.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import socket
import tempfile
import time
from pathlib import Path
from typing import Protocol

import psycopg
from django.conf import settings
from django.db import connections, transaction

#: The channel of PostgreSQL's NOTIFY.
CHANNEL = "countersign_queue"

#: A unix socket's address holds 108 bytes on Linux and 104 elsewhere, the closing NUL included.
_LONGEST_ADDRESS = 100


class Listener(Protocol):
    """Waits for a wake-up. It belongs to the process that made it, and is no good after a fork."""

    def is_ours(self) -> bool:
        """Whether this process made it."""
        ...

    def wait(self, seconds: float) -> None:
        """Return at a wake-up, or after `seconds`. Never raises: the caller polls anyway."""
        ...

    def close(self) -> None:
        """Give its socket or connection back."""
        ...


def socket_directory() -> Path:
    """Where listeners bind: `DATA_DIR/run`, or a private folder below /tmp if that is too long."""
    directory = Path(settings.DATA_DIR) / "run"
    if len(os.fsencode(directory)) <= _LONGEST_ADDRESS - 24:
        return directory
    name = hashlib.sha256(os.fsencode(directory)).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"countersign-{os.getuid()}-{name}"


class SocketListener:
    """A datagram socket of this process."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        directory = socket_directory()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = directory / f"wake-{self._pid}-{time.monotonic_ns() % 10**6}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(str(self._path))

    def is_ours(self) -> bool:
        return self._pid == os.getpid()

    def wait(self, seconds: float) -> None:
        readable, _, _ = select.select([self._socket], [], [], seconds)
        if readable:
            with contextlib.suppress(BlockingIOError):
                while True:
                    self._socket.recv(16)

    def close(self) -> None:
        self._socket.close()
        self._path.unlink(missing_ok=True)


class NotifyListener:
    """A connection of its own that LISTENs; made again at the next wait when it was lost."""

    def __init__(self, *, using: str) -> None:
        self._pid = os.getpid()
        self._using = using
        self._connection: psycopg.Connection[tuple[object, ...]] | None = None
        with contextlib.suppress(psycopg.Error):
            self._connect()

    def _connect(self) -> psycopg.Connection[tuple[object, ...]]:
        parameters = dict(connections[self._using].get_connection_params())
        for name in ("cursor_factory", "context", "prepare_threshold"):
            parameters.pop(name, None)
        self._connection = psycopg.connect(**parameters, autocommit=True)
        self._connection.execute(f"LISTEN {CHANNEL}")
        return self._connection

    def is_ours(self) -> bool:
        return self._pid == os.getpid()

    def wait(self, seconds: float) -> None:
        try:
            connection = self._connection or self._connect()
            for _ in connection.notifies(timeout=seconds, stop_after=1):
                pass
        except (psycopg.Error, OSError):
            self.close()
            time.sleep(seconds)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()


def listener(*, using: str) -> Listener:
    """A listener for the database of that alias."""
    if connections[using].vendor == "postgresql":
        return NotifyListener(using=using)
    return SocketListener()


def wake(*, using: str) -> None:
    """Wake every listener once the current transaction commits (at once outside of one)."""
    connection = connections[using]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_notify(%s, '')", [CHANNEL])
    else:
        transaction.on_commit(knock, using=using)


def knock() -> None:
    """Send one datagram to each listener's socket; the socket of a dead one is removed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        for path in socket_directory().glob("wake-*"):
            try:
                sender.sendto(b"1", str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
            except OSError:
                continue  # full or just gone: it will look anyway

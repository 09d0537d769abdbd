"""A database that several threads and processes really share, for tests of their meeting.

PostgreSQL's test database is one already. SQLite's lives in the memory of this process: `shared`
copies it, triggers and all, to a file in WAL mode, and points every connection there.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from django.db import connections
from django.db.utils import load_backend

from tests.servers.postgres import PostgresServer
from tests.servers.processes import SHARED, migrated


@contextmanager
def ready_made() -> Iterator[None]:
    """Inside, the test database begins as a copy of one that this run of tests has migrated.

    Only where `make test` named a place for it: one file's tests are faster without a copy.
    """
    if SHARED not in os.environ:
        yield
        return
    connection = connections["default"]
    if connection.vendor == "postgresql":
        server = PostgresServer(int(connection.settings_dict["PORT"]))
        connection.settings_dict["TEST"]["TEMPLATE"] = server.migrated()
        yield
        return
    name = connection.creation._get_test_db_name()
    with closing(sqlite3.connect(name, uri=True)) as memory:  # what nobody has open is gone
        with closing(sqlite3.connect(migrated())) as file:
            file.backup(memory)
        yield


@contextmanager
def shared(directory: Path) -> Iterator[None]:
    """Inside, every connection of this and of forked processes meets in one real database.

    For tests with `transaction=True`. Rows written inside are gone afterwards on SQLite.
    """
    memory = connections["default"]
    if memory.vendor != "sqlite":
        yield
        memory.close()
        return
    path = directory / "shared.sqlite3"
    with memory.cursor() as cursor:
        cursor.execute("VACUUM INTO %s", [str(path)])
    usual = dict(connections.databases["default"])
    try:
        _point_at(str(path))
        yield
    finally:
        connections["default"].close()
        connections.databases["default"].update(usual)
        connections["default"] = memory


@contextmanager
def empty(directory: Path) -> Iterator[None]:
    """Inside, the connection of this process leads to a new database without a single table.

    For tests of migrations, with `transaction=True`.
    """
    usual = connections["default"]
    configured = dict(connections.databases["default"])
    name = configured["NAME"]
    try:
        if usual.vendor == "sqlite":
            _point_at(str(directory / "empty.sqlite3"))
            yield
            return
        other = f"{name}_empty"
        with usual._nodb_cursor() as cursor:
            cursor.execute(f'DROP DATABASE IF EXISTS "{other}"')
            cursor.execute(f'CREATE DATABASE "{other}"')
        _point_at(other)
        yield
    finally:
        connections["default"].close()
        connections.databases["default"].update(configured)
        connections["default"] = usual


def _point_at(path: str) -> None:
    configured = connections.databases["default"]
    configured["NAME"] = path
    if "init_command" in configured["OPTIONS"]:  # a process that is killed loses nothing by it
        no_waiting = configured["OPTIONS"]["init_command"].replace("=FULL", "=OFF")
        configured["OPTIONS"] = configured["OPTIONS"] | {"init_command": no_waiting}
    backend = load_backend(configured["ENGINE"])
    connections["default"] = backend.DatabaseWrapper(configured | {"NAME": path}, "default")
    connections["default"].ensure_connection()  # alone: switching to WAL waits for nobody


def url() -> str:
    """The address of the database that tests use right now, for a process of its own."""
    used = connections["default"].settings_dict
    if connections["default"].vendor == "sqlite":
        return f"sqlite:///{used['NAME']}"
    who = ":".join(quote(str(used[part]), safe="") for part in ("USER", "PASSWORD") if used[part])
    where = f"{used['HOST']}:{used['PORT']}" if used["PORT"] else used["HOST"]
    return f"postgres://{who}@{where}/{used['NAME']}"


def forked(work: Callable[[], None]) -> int:
    """Run `work` in a forked process of this test; its pid. Collect it with `exit_of`.

    The parent's connections are closed first, so that no socket is shared. The child leaves by
    `os._exit`: nothing of pytest runs in it.
    """
    connections.close_all()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except BaseException:  # noqa: BLE001  (the child has nobody else to tell)
        traceback.print_exc()
    finally:
        os._exit(code)


def exit_of(pid: int) -> int:
    """Wait for a forked process: its exit code, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kill_me() -> None:
    """End this very process as a power cut would."""
    os.kill(os.getpid(), signal.SIGKILL)

"""An installation with its own data directory, and its processes as they run in production."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import psycopg

from tests.servers import forking
from tests.servers.presence import free_port, is_listening, wait_until

ROOT = Path(__file__).resolve().parent.parent.parent

#: Settings of the developer's own environment that must not leak into an installation of a test.
_NOT_INHERITED = ("DATABASE_URL", "REDIS_URL", "DATA_DIR", "DJANGO_SETTINGS_MODULE")


#: `make test` names a directory here that its pytest workers share.
SHARED = "COUNTERSIGN_TEST_SHARED"

_SQLITE = "countersign.sqlite3"


@cache
def migrated() -> Path:
    """An empty SQLite database with all tables and triggers, made once for this run of tests."""
    given = os.environ.get(SHARED)
    directory = Path(given or tempfile.mkdtemp(prefix="cs-migrated-", dir="/tmp"))
    if not given:
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
    database, in_the_making = directory / _SQLITE, directory / "in-the-making"
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not database.exists():
            in_the_making.mkdir()
            Installation(in_the_making).manage("migrate", "--verbosity=0")
            assert not (in_the_making / f"{_SQLITE}-wal").exists()
            (in_the_making / _SQLITE).rename(database)
    return database


class Process:
    """One `manage.py` process in a session of its own; its output is kept in a file."""

    def __init__(self, arguments: list[str], env: dict[str, str], log: Path) -> None:
        self.log = log
        self._file = log.open("ab")
        self.popen = subprocess.Popen(
            [sys.executable, str(ROOT / "manage.py"), *arguments],
            env=env,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self.popen.pid

    def is_alive(self) -> bool:
        return self.popen.poll() is None

    def stop(self, seconds: float = 20.0) -> int:
        """SIGTERM to the main process, as systemd's KillMode=mixed does; its exit code."""
        if self.is_alive():
            self.popen.terminate()
        try:
            code = self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            code = -9
        self.kill()
        return code

    def kill(self) -> None:
        """SIGKILL to the whole session."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait(10)
        self._file.close()

    def output(self) -> str:
        return self.log.read_text(errors="replace")


class Installation:
    """Everything below one directory. `env` holds settings for all its processes."""

    def __init__(self, directory: Path, *, database_url: str = "", **env: str) -> None:
        self.directory = directory
        self.env = {
            **{name: value for name, value in os.environ.items() if name not in _NOT_INHERITED},
            "DATA_DIR": str(directory),
            "SECRET_KEY": "an-installation-of-a-test-" + "0" * 40,
            "DATABASE_URL": database_url or f"sqlite:///{directory}/{_SQLITE}",
            "REDIS_URL": "",
            "LOG_FORMAT": "console",
            **env,
        }
        self.processes: list[Process] = []

    def __enter__(self) -> Installation:
        if self.env["DATABASE_URL"] == f"sqlite:///{self.directory}/{_SQLITE}":
            shutil.copy(migrated(), self.directory / _SQLITE)
        elif self.rows("SELECT to_regclass('django_migrations')") == [(None,)]:
            self.manage("migrate", "--verbosity=0")
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self.processes:
            process.kill()

    def manage(
        self, *arguments: str, check: bool = True, timeout: float = 90.0
    ) -> subprocess.CompletedProcess[str]:
        """Run one command to its end."""
        done = subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), *arguments],
            env=self.env,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check and done.returncode != 0:
            raise AssertionError(
                f"{arguments} exited {done.returncode}:\n{done.stdout}{done.stderr}"
            )
        return done

    def python(self, code: str, **values: Any) -> Any:
        """Run code inside this installation; `values` are its names, `answer` its JSON answer."""
        program = (
            "import gc, json, sys; gc.disable()\n"
            "import django; django.setup()\n"
            "values = json.loads(sys.argv[1]); globals().update(values); answer = None\n"
            f"{code}\n"
            "print('\\n' + json.dumps(answer, default=str))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, json.dumps(values)],
            env={**self.env, "DJANGO_SETTINGS_MODULE": "config.settings"},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=90,
        )
        if done.returncode != 0:
            raise AssertionError(f"exit {done.returncode}:\n{done.stderr}")
        return json.loads(done.stdout.rsplit("\n", 2)[-2])

    def inside(self, code: str, **values: Any) -> Any:
        """What `python` does, in a fork of this process that takes the installation's settings.

        No Python has to start for it. The queue hears nothing of it: what is due is found by the
        sweep.
        """
        return forking.answered_by(lambda: forking.run(self.env, code, values), seconds=90.0)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What the database answers, read past the program: no Python has to start for it."""
        url = self.env["DATABASE_URL"]
        if not url.startswith("sqlite:"):
            with psycopg.connect(url) as connection:
                return connection.execute(query.encode()).fetchall()
        place = f"file:{url.removeprefix('sqlite:///')}?mode=ro"
        with contextlib.closing(sqlite3.connect(place, uri=True, timeout=20)) as database:
            return database.execute(query).fetchall()

    def execute(self, statement: str, *values: object) -> None:
        """Write past the program, as somebody with the database at hand could."""
        url = self.env["DATABASE_URL"]
        if not url.startswith("sqlite:"):
            with psycopg.connect(url) as connection:
                connection.execute(statement.encode(), values)
            return
        place = url.removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(place, timeout=20)) as database, database:
            database.execute(statement.replace("%s", "?"), values)

    def start(self, *arguments: str, **env: str) -> Process:
        """Start a long-lived command; it ends with the installation."""
        log = self.directory / f"{arguments[0]}-{len(self.processes)}.log"
        process = Process(list(arguments), {**self.env, **env}, log)
        self.processes.append(process)
        return process

    def worker(self, **env: str) -> Process:
        """The queue's worker."""
        return self.start("worker", **env)

    def watcher(self, **env: str) -> Process:
        """The process that watches every account."""
        return self.start("watch_mail", **env)

    def web(self, **env: str) -> tuple[Process, str]:
        """daphne, and the address it answers at."""
        port = free_port()
        process = self.start("web", "--port", str(port), **env)
        wait_until(lambda: is_listening("127.0.0.1", port) or not process.is_alive(), "daphne")
        assert process.is_alive(), process.output()
        return process, f"http://127.0.0.1:{port}"

"""A PostgreSQL of our own. It refuses root, so root starts it as the user `postgres`."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.servers.presence import find_binary, free_port, is_listening, wait_until
from tests.servers.processes import Installation

#: `make test` starts one server for the whole run and names it here.
VARIABLE = "COUNTERSIGN_TEST_POSTGRES"


class PostgresServer:
    """Knows where a server is and makes databases in it."""

    def __init__(self, port: int) -> None:
        self.port = port

    def url(self, database: str = "postgres") -> str:
        return f"postgres://postgres@127.0.0.1:{self.port}/{database}"

    def new_database(self, template: str = "template1") -> str:
        """The URL of a fresh database: empty, or a copy of another one (`migrated()`)."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return self.url(name)

    def migrated(self) -> str:
        """The name of a database with all tables and triggers, made once in the server's life."""
        name, in_the_making = "migrated", "in_the_making"
        known = "SELECT 1 FROM pg_database WHERE datname = %s"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute("SELECT pg_advisory_lock(1)")
            if connection.execute(known, [name]).fetchone() is None:
                connection.execute(f"DROP DATABASE IF EXISTS {in_the_making} WITH (FORCE)")
                connection.execute(f"CREATE DATABASE {in_the_making}")
                with tempfile.TemporaryDirectory(prefix="cs-", dir="/tmp") as directory:
                    made = Installation(Path(directory), database_url=self.url(in_the_making))
                    made.manage("migrate", "--verbosity=0")
                connection.execute(f"ALTER DATABASE {in_the_making} RENAME TO {name}")
        return name

    def drop_database(self, url: str) -> None:
        name = url.rsplit("/", 1)[1]
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """The server of this run, or a new one that ends with the block."""
    given = os.environ.get(VARIABLE)
    if given:
        yield PostgresServer(int(given))
        return
    directory = Path(tempfile.mkdtemp(prefix="cs-pg-", dir="/tmp"))
    try:
        with _started(directory) as server:
            yield server
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _started(directory: Path) -> Iterator[PostgresServer]:
    as_user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    if as_user:
        shutil.chown(directory, "postgres")
    data = directory / "data"
    subprocess.run(
        [*as_user, find_binary("initdb"), "-D", data, "-U", "postgres", "-A", "trust", "--no-sync"],
        check=True,
        capture_output=True,
        cwd="/tmp",
    )
    port = free_port()
    options = ["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "max_connections=200"]
    server = subprocess.Popen(
        [*as_user, find_binary("postgres"), "-D", data, "-k", directory, "-p", str(port), *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/tmp",
    )
    try:
        wait_until(lambda: is_listening("127.0.0.1", port), "PostgreSQL")
        wait_until(lambda: _answers(port), "PostgreSQL")
        yield PostgresServer(port)
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _answers(port: int) -> bool:
    try:
        psycopg.connect(PostgresServer(port).url(), connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True

"""Real servers and real processes for tests, as a pytest plugin (`-p tests.servers`).

Everything listens on loopback, on ports of its own, below a directory of its own, and ends with the
test run. What is missing on this machine is skipped by name; with `CI=true` that is a failure.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.claude import Claude, require_claude
from tests.servers.dovecot import DovecotServer
from tests.servers.google import GoogleServer
from tests.servers.messages_api import MessagesApi
from tests.servers.postgres import PostgresServer, running_postgres
from tests.servers.presence import require_binaries
from tests.servers.processes import Installation
from tests.servers.redis import RedisServer
from tests.servers.smtp import SmtpServer

__all__ = [
    "Claude",
    "DovecotServer",
    "GoogleServer",
    "Installation",
    "MessagesApi",
    "PostgresServer",
    "RedisServer",
    "SmtpServer",
]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what belongs to the other database: that is no skip."""
    from django.db import connection

    def belongs(item: pytest.Item) -> bool:
        marker = item.get_closest_marker("only_on")
        return marker is None or marker.args[0] == connection.vendor

    others = [item for item in items if not belongs(item)]
    if others:
        items[:] = [item for item in items if belongs(item)]
        config.hook.pytest_deselected(items=others)


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """A directory with a short path: sockets of gpg-agent and of the queue need one."""
    directory = Path(tempfile.mkdtemp(prefix="cs-", dir="/tmp"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One PostgreSQL per run (or per worker, where `make test` did not start one)."""
    require_binaries("postgres", "initdb")
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One Redis per worker."""
    require_binaries("redis-server")
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def dovecot() -> Iterator[DovecotServer]:
    """One Dovecot per worker; each test takes a mailbox of its own (`dovecot.new_user()`)."""
    require_binaries("dovecot")
    with DovecotServer() as server:
        yield server


@pytest.fixture
def smtp_server() -> Iterator[SmtpServer]:
    """A recording SMTP server with switches for faults."""
    with SmtpServer() as server:
        yield server


@pytest.fixture
def google_server() -> Iterator[GoogleServer]:
    """A synthetic Google on loopback with a switch for each fault, counting every contact."""
    with GoogleServer() as server:
        yield server


@pytest.fixture
def installation(short_directory: Path) -> Iterator[Installation]:
    """An installation of its own on SQLite: data directory, migrated database, processes."""
    with Installation(short_directory) as made:
        yield made


@pytest.fixture
def messages_api() -> Iterator[MessagesApi]:
    """A scriptable stand-in for the Messages API."""
    with MessagesApi() as server:
        yield server


@pytest.fixture
def claude(short_directory: Path, messages_api: MessagesApi) -> Claude:
    """The real `claude` program, which can talk to the stand-in alone."""
    home, directory = short_directory / "home", short_directory / "work"
    home.mkdir()
    directory.mkdir()
    return Claude(require_claude(), home, directory, messages_api.url)

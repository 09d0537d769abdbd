"""The desk, its owner, and a mail server that counts what it takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from approvals.services import artifacts
from mail import registry as mail_registry
from mail.gateways.memory import MemoryServer, MemoryTransport
from pipelines.services import verification
from tests.databases import shared
from tests.keys import Keys
from tests.pipelines.factories import Desk, Owner
from tests.pipelines.workers import Workshop, mcp_server
from tests.servers.messages_api import MessagesApi
from tests.servers.presence import require_binaries


@pytest.fixture
def owner(keys: Keys, settings, tmp_path: Path) -> Iterator[Owner]:
    """The owner's key is configured, and nothing is remembered about earlier documents."""
    directory = tmp_path / "commands"
    directory.mkdir()
    key_file = tmp_path / "owner.pgp"
    key_file.write_bytes(keys.owner.public)
    settings.OWNER_FINGERPRINT = keys.owner.fingerprint
    settings.OWNER_HANDLE = ""
    settings.OWNER_KEY_FILE = str(key_file)
    verification.forget()
    yield Owner(keys.owner, directory)
    verification.forget()


@pytest.fixture
def server() -> Iterator[MemoryServer]:
    """Every account speaks to this server."""
    artifacts.ensure_key()
    server = MemoryServer()
    before = mail_registry.transport("imap")
    mail_registry.register_transport("imap", MemoryTransport(server))
    yield server
    mail_registry.register_transport("imap", before)


@pytest.fixture
def desk(db, keys: Keys, server: MemoryServer) -> Desk:
    """An agent whose replies leave at once, and Alice, who may ask it for work."""
    return Desk(keys.alice)


@pytest.fixture
def scripts(settings, tmp_path: Path) -> Path:
    """A directory whose programs commands may run."""
    directory = tmp_path / "bin"
    directory.mkdir()
    settings.ALLOWED_BINARIES = [*settings.ALLOWED_BINARIES, str(directory)]
    return directory


@pytest.fixture
def workshop(
    transactional_db, messages_api: MessagesApi, settings, short_directory: Path
) -> Iterator[Workshop]:
    """The real program in its sandbox, our MCP server, and a model that does what a test says."""
    require_binaries("bwrap")
    with shared(short_directory), mcp_server() as url:
        yield Workshop(messages_api, short_directory, settings, url)

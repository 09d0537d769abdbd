"""Fixtures of mail: a server in memory behind the `imap` protocol, and an agent with a mailbox."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from approvals.services import artifacts
from mail import registry
from mail.gateways.base import Endpoint, Transport
from mail.gateways.imap import ImapTransport
from mail.gateways.memory import MemoryServer, MemoryTransport
from tests.keys import Key, Keys
from tests.mail.factories import AccountFactory, IdentityFactory
from tests.mail.owner import SECRET, owned_by
from tests.mail.told import shown, told_house, told_once  # noqa: F401
from tests.servers.dovecot import PASSWORD as DOVECOT_PASSWORD


@pytest.fixture
def mail_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryServer]:
    """A server in memory; every account of the test speaks to it."""
    monkeypatch.setenv("MAIL_SECRET", SECRET)
    server = MemoryServer()
    real = registry.transport("imap")
    registry.register_transport("imap", MemoryTransport(server))
    yield server
    registry.register_transport("imap", real)


@pytest.fixture(autouse=True)
def artifact_key() -> None:
    """Frozen mail is kept encrypted: the run's data directory has a key."""
    artifacts.ensure_key()


@pytest.fixture
def account(db: None, mail_server: MemoryServer):
    """An agent's mailbox on the server in memory."""
    identity = IdentityFactory(handle="agent", email="agent@agents.test", reply_policy="auto")
    mail_server.add_user("agent@agents.test", SECRET)
    return AccountFactory(identity=identity, sent_folder="")


@dataclass
class Box:
    """One real or memory mailbox for contract tests."""

    transport: Transport
    endpoint: Endpoint
    deliver: object
    second: object = None


@pytest.fixture(params=["memory", "embedded", "dovecot"])
def box(request: pytest.FixtureRequest) -> Box:
    """A fresh mailbox behind each gateway that has to keep the contract."""
    return request.getfixturevalue(f"{request.param}_box")


@pytest.fixture
def memory_box() -> Box:
    server = MemoryServer()
    server.add_user("user", SECRET)
    return Box(
        MemoryTransport(server),
        Endpoint("127.0.0.1", 1143, "user", SECRET),
        lambda raw: server.deliver("user", raw),
    )


@pytest.fixture
def dovecot_box(dovecot) -> Box:
    user = dovecot.new_user()
    endpoint = Endpoint(dovecot.host, dovecot.imap_port, user, DOVECOT_PASSWORD, skip_verify=True)
    return Box(ImapTransport(), endpoint, lambda raw: dovecot.append(user, raw))


@dataclass
class Embedded:
    """The embedded server in a loop of its own, with mailboxes that nobody has used yet."""

    imap: int
    unused: Iterator[str]
    deliver: Callable[[str, bytes], object]


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """Started once for the session."""
    from config.embedded_mail import EmbeddedMail, Mailbox

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def call(coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(30)

    users = [f"user{number}@agents.test" for number in range(30)]
    server = EmbeddedMail(
        directory=tmp_path_factory.mktemp("embedded"),
        mailboxes=[Mailbox(user, SECRET) for user in users],
    )
    ports = call(server.__aenter__())
    yield Embedded(ports.imap, iter(users), lambda user, raw: call(server.deliver(user, raw)))
    call(server.__aexit__(None, None, None))
    loop.call_soon_threadsafe(loop.stop)
    thread.join(5)


@pytest.fixture
def embedded_box(embedded: Embedded) -> Box:
    user = next(embedded.unused)
    endpoint = Endpoint("127.0.0.1", embedded.imap, user, SECRET)
    return Box(ImapTransport(), endpoint, lambda raw: embedded.deliver(user, raw))


@pytest.fixture
def owner_key(keys: Keys, settings: Any, tmp_path: Path) -> Key:
    """The owner is Reader: his key signs and reads, and his address is told what waits."""
    for name, value in owned_by(keys.reader, tmp_path).items():
        setattr(settings, name, value)
    return keys.reader

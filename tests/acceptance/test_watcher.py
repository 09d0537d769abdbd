"""The watcher as a process, with a real Dovecot: how it starts, stops, dies and comes back."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mail.services.watching import IDLE_SECONDS
from tests.acceptance import world
from tests.keys import Keys
from tests.mail.factories import make_mail
from tests.servers import DovecotServer, Installation
from tests.servers.dovecot import PASSWORD
from tests.servers.presence import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

_COUNT = "SELECT count(*) FROM mail_message"
_STATE = """
from mail.models import Account
from teams.models import Event
account = Account.objects.get(name="one")
kinds = list(Event.objects.values_list("kind", flat=True))
answer = [account.state, kinds.count("account.failing"), kinds.count("account.recovered")]
"""


class Proxy:
    """Between watcher and server. `deaf` swallows every byte in silence, without closing."""

    def __init__(self, host: str, port: int, listen: str) -> None:
        self._target = (host, port)
        self.deaf = False
        self._listener = socket.create_server((listen, 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while received := source.recv(65536):
                if not self.deaf:
                    sink.sendall(received)
            sink.shutdown(socket.SHUT_WR)


@pytest.fixture
def house(short_directory: Path, keys: Keys) -> Iterator[Installation]:
    environment = world.owner_environment(keys.owner, short_directory)
    with Installation(short_directory, **environment) as made:
        yield made


def add(house: Installation, dovecot: DovecotServer, keys: Keys, port: int | None = None) -> str:
    """The agent, its contact, and its one account; the account's user."""
    user = dovecot.new_user()
    account = {
        "name": "one",
        "host": dovecot.host,
        "port": port or dovecot.imap_port,
        "username": user,
        "imap_password": PASSWORD,
        "smtp_host": "127.0.0.1",
        "smtp_port": 1,
    }
    world.build(house, owner=keys.owner, sender=keys.alice, accounts=[account])
    return user


def stored(house: Installation, number: int) -> None:
    wait_until(lambda: house.rows(_COUNT) == [(number,)], f"{number} stored mails", 60)


def test_it_takes_up_accounts_stops_at_once_and_goes_on_after_a_kill(house, dovecot, keys):
    watcher = house.watcher()
    user = add(house, dovecot, keys)
    world.wait_for_first_passes(house, 1)
    dovecot.append(user, make_mail(subject="first"))
    stored(house, 1)

    watcher.kill()
    dovecot.append(user, make_mail(subject="while it was dead"))
    watcher = house.watcher()
    stored(house, 2)

    # It waits in IDLE now: one that sat that out would still be there after the half of it.
    assert watcher.stop(IDLE_SECONDS / 2) == 0, watcher.output()
    assert house.rows(_COUNT) == [(2,)]


@pytest.mark.invariant(5)
@pytest.mark.soak
@pytest.mark.fault("imap-06", "imap-09")
def test_a_line_that_falls_silent_is_one_alert_and_mail_follows_when_it_heals(house, dovecot, keys):
    proxy = Proxy(dovecot.host, dovecot.imap_port, dovecot.host)
    user = add(house, dovecot, keys, proxy.port)
    house.watcher()
    world.wait_for_first_passes(house, 1)
    proxy.deaf = True
    dovecot.append(user, make_mail(subject="unseen"))
    wait_until(lambda: house.inside(_STATE)[0] == "failing", "the alert", 110)
    proxy.deaf = False
    stored(house, 1)
    wait_until(lambda: house.inside(_STATE) == ["ok", 1, 1], "the recovery", 90)
    proxy.close()

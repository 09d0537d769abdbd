"""The watcher: mail the moment it arrives, and a watch that outlives whatever a server does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from django.db import OperationalError, connection

from guards.selectors import latest_heartbeat
from mail import registry
from mail.gateways.base import Waker
from mail.gateways.memory import MemoryMailbox, MemoryTransport
from mail.models import Account, AccountLease, Message
from mail.services import accounts, leases, watching
from teams.models import Event
from tests.databases import shared
from tests.mail.factories import OPERATOR, AccountFactory, make_mail
from tests.mail.scripted import eventually

pytestmark = pytest.mark.django_db(transaction=True)

USER = "agent@agents.test"


@pytest.fixture
def shared_database(transactional_db, tmp_path) -> Iterator[None]:
    with shared(tmp_path):
        yield


@pytest.fixture
def watcher(shared_database, mail_server, account, monkeypatch) -> Iterator[Waker]:
    """A running watcher with short waits; it is stopped at the end, and must stop."""
    monkeypatch.setattr(watching, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(watching, "HELD_SECONDS", 0.1)
    monkeypatch.setattr(accounts, "BACKOFF_CAP", 0.1)
    monkeypatch.setattr(accounts, "BACKOFF_CAP_PERMANENT", 0.1)
    stop = Waker()

    def run() -> None:
        try:
            watching.watch(stop=stop)
        finally:
            connection.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield stop
    started = time.monotonic()
    stop.wake()
    thread.join(10)
    assert not thread.is_alive()
    assert time.monotonic() - started < 5
    assert latest_heartbeat("watcher") is None
    stop.close()


@pytest.fixture
def watched(watcher, account, mail_server):
    """After the first pass."""
    eventually(lambda: Account.objects.get(pk=account.pk).last_success_at is not None)
    return account


def stored(count: int, **filters: object) -> None:
    eventually(lambda: Message.objects.filter(**filters).count() == count)


def test_mail_is_stored_when_it_arrives(watched, mail_server):
    mail_server.deliver(USER, make_mail(subject="one"))
    stored(1)
    mail_server.deliver(USER, make_mail(subject="two"))
    stored(2)
    assert leases.is_watched(account_id=watched.pk)
    assert latest_heartbeat("watcher") is not None


@pytest.mark.one_database
@pytest.mark.invariant(5)
@pytest.mark.fault("imap-07", "imap-08")
def test_a_connection_that_ends_is_made_again_and_polled_at_once(watched, mail_server):
    for n in range(3):
        mail_server.drop_connections()
        mail_server.deliver(USER, make_mail(subject=str(n)))
        stored(n + 1)


@pytest.mark.one_database
@pytest.mark.invariant(5)
@pytest.mark.fault("imap-09")
def test_a_server_that_is_away_is_one_alert_and_mail_follows_when_it_is_back(watched, mail_server):
    mail_server.down = True
    mail_server.drop_connections()
    eventually(lambda: Account.objects.get().failures >= 3)
    assert Account.objects.get().state == "failing"
    mail_server.folder(USER).add(make_mail(), OPEN_DATE)
    mail_server.down = False
    stored(1)
    eventually(lambda: Account.objects.get().state == "ok")
    assert Event.objects.filter(kind="account.failing").count() == 1
    assert Event.objects.filter(kind="account.recovered").count() == 1


def test_a_database_that_was_away_leaves_no_lease_that_nobody_holds(watched, mail_server):
    """The lease could not be given back; kept until it ends, it would shut out its own holder."""
    away = threading.Event()

    def refuse(execute, *arguments):
        if away.is_set():
            raise OperationalError("the database system is starting up")
        return execute(*arguments)

    class Restarting(MemoryMailbox):
        def idle(self, *, seconds, waker=None):
            heard = super().idle(seconds=seconds, waker=waker)
            if heard and refuse not in connection.execute_wrappers:
                connection.execute_wrappers.append(refuse)
                away.set()
            return heard

    transport = MemoryTransport(mail_server)
    transport.open_mailbox = lambda endpoint: Restarting(mail_server, endpoint.username)
    registry.register_transport("imap", transport)
    mail_server.drop_connections()
    eventually(lambda: any(isinstance(one, Restarting) for one in mail_server.listeners))
    mail_server.deliver(USER, make_mail())
    eventually(lambda: away.is_set() and not mail_server.listeners)
    away.clear()
    stored(1)


@pytest.mark.one_database
def test_an_account_that_is_added_is_taken_up(watched, mail_server):
    mail_server.add_user("second@agents.test", "mailbox-secret")
    other = AccountFactory(identity__handle="second", identity__email="second@agents.test")
    eventually(lambda: Account.objects.get(pk=other.pk).state == "ok")
    mail_server.deliver("second@agents.test", make_mail())
    stored(1, account=other)


@pytest.mark.one_database
def test_an_account_that_is_switched_off_is_left_and_taken_up_again(watched, mail_server):
    accounts.disable(account_id=watched.pk, by=OPERATOR)
    eventually(lambda: AccountLease.objects.get().holder == "")
    mail_server.deliver(USER, make_mail())
    accounts.enable(account_id=watched.pk, by=OPERATOR)
    stored(1)


@pytest.mark.one_database
def test_an_account_that_is_changed_is_read_as_it_is_now(watched, mail_server):
    mail_server.add_user("moved@agents.test", "mailbox-secret")
    accounts.update_account(account_id=watched.pk, by=OPERATOR, username="moved@agents.test")
    eventually(lambda: Account.objects.get().last_success_at is not None)
    eventually(lambda: {box._username for box in mail_server.listeners} == {"moved@agents.test"})
    mail_server.deliver("moved@agents.test", make_mail())
    stored(1)


@pytest.mark.one_database
def test_a_server_without_idle_is_polled_every_interval(
    shared_database, mail_server, account, monkeypatch
):
    mail_server.capabilities = frozenset({"IMAP4REV1"})
    monkeypatch.setattr(watching, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(watching.accounts, "_INTERVALS", {Account.Interval.M5: 0.002})
    stop = Waker()
    thread = threading.Thread(target=lambda: (watching.watch(stop=stop), connection.close()))
    thread.start()
    try:
        mail_server.deliver(USER, make_mail())
        stored(1)
        mail_server.folder(USER).add(make_mail(subject="two"), OPEN_DATE)
        stored(2)
    finally:
        stop.wake()
        thread.join(10)
    assert not thread.is_alive()


OPEN_DATE = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)


def test_a_lease_that_was_taken_away_ends_the_turn_and_nothing_is_doubled(watched, mail_server):
    fence = AccountLease.objects.get().fence
    AccountLease.objects.update(fence=fence + 5, holder="elsewhere:0:1:1", expires_at=None)
    mail_server.deliver(USER, make_mail())
    stored(1)
    eventually(lambda: AccountLease.objects.get().fence > fence + 5)
    assert Message.objects.count() == 1


@pytest.mark.one_database
@pytest.mark.invariant(5)
@pytest.mark.fault("imap-06", "imap-08")
def test_waits_are_short_enough_for_every_server():
    assert watching.IDLE_SECONDS < 29 * 60
    assert watching.IDLE_SECONDS + 20 + 5 <= 90
    assert leases.LEASE_SECONDS > watching.IDLE_SECONDS + 2 * 30

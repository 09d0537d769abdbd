"""A task that commits wakes a sleeping worker; one that rolls back does not."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from django.db import transaction

from guards.queue import wakeup

LONG = 20.0


@pytest.fixture
def listener():
    made = wakeup.listener(using="default")
    yield made
    made.close()


def _wait_in_thread(listener: wakeup.Listener, seconds: float) -> threading.Thread:
    thread = threading.Thread(target=listener.wait, args=(seconds,))
    thread.start()
    return thread


@pytest.mark.django_db(transaction=True)
def test_a_committed_wake_ends_the_wait(listener):
    thread = _wait_in_thread(listener, LONG)
    with transaction.atomic():
        wakeup.wake(using="default")
    thread.join(LONG / 2)
    assert not thread.is_alive()


@pytest.mark.django_db(transaction=True)
def test_a_rolled_back_wake_does_not(listener):
    thread = _wait_in_thread(listener, 0.6)
    with pytest.raises(RuntimeError), transaction.atomic():
        wakeup.wake(using="default")
        raise RuntimeError
    thread.join(0.2)
    assert thread.is_alive()
    thread.join()


def test_a_socket_of_a_dead_listener_is_removed(settings, short_directory: Path):
    settings.DATA_DIR = short_directory
    made = wakeup.SocketListener()
    made._socket.close()
    wakeup.knock()
    assert list(wakeup.socket_directory().iterdir()) == []


def test_a_long_data_directory_still_gives_a_short_socket(settings, tmp_path: Path):
    settings.DATA_DIR = tmp_path / ("d" * 120)
    made = wakeup.SocketListener()
    thread = _wait_in_thread(made, LONG)
    wakeup.knock()
    thread.join(LONG / 2)
    assert not thread.is_alive()
    made.close()
    wakeup.socket_directory().rmdir()


def test_a_listener_is_of_no_use_after_a_fork(settings, short_directory: Path):
    settings.DATA_DIR = short_directory
    made = wakeup.SocketListener()
    assert made.is_ours()
    made._pid = os.getpid() + 1
    assert not made.is_ours()
    made.close()


@pytest.mark.only_on("postgresql")
@pytest.mark.django_db(transaction=True)
def test_postgresql_wakes_by_notify_again_after_the_connection_was_lost():
    made = wakeup.NotifyListener(using="default")
    made._connection.close()
    made.wait(0.1)
    thread = _wait_in_thread(made, LONG)
    until = threading.Event()
    while thread.is_alive() and not until.wait(0.2):
        wakeup.wake(using="default")
    made.close()

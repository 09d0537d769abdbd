"""Writers of an embedded database take turns, and nobody waits for ever."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest
from django.db import connections, transaction

from guards.services import turns
from guards.services.units import unit_of_work
from tests.databases import exit_of, forked, shared


@pytest.fixture
def embedded(tmp_path, monkeypatch):
    """As if the database were a file here, and nobody in a transaction."""
    database = connections["default"]
    if database.vendor != "sqlite":
        pytest.skip("only an embedded database lets one writer in at a time")
    path = tmp_path / "house.sqlite3"
    monkeypatch.setitem(database.settings_dict, "NAME", str(path))
    monkeypatch.setattr(database, "in_atomic_block", False)
    return path.with_name("house.sqlite3-turn")


def is_free(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)


@pytest.mark.django_db
def test_the_turn_is_held_and_given_back_whatever_happens(embedded):
    with pytest.raises(KeyError), turns.turn_to_write():
        assert not is_free(embedded)
        raise KeyError

    assert is_free(embedded)


@pytest.mark.django_db
def test_whoever_has_waited_long_enough_goes_on(embedded, monkeypatch):
    monkeypatch.setattr(turns, "_PATIENCE", 0.01)
    with turns.turn_to_write(), turns.turn_to_write():
        assert not is_free(embedded)


@pytest.mark.django_db
def test_inside_a_transaction_nobody_waits(embedded, monkeypatch):
    monkeypatch.setattr(connections["default"], "in_atomic_block", True)
    with turns.turn_to_write():
        assert not embedded.exists()


@pytest.mark.django_db(transaction=True)
def test_a_unit_of_work_comes_after_the_one_that_has_the_turn(tmp_path):
    if connections["default"].vendor != "sqlite":
        pytest.skip("only an embedded database lets one writer in at a time")
    began, ended = tmp_path / "began", tmp_path / "ended"

    def first() -> None:
        with unit_of_work():
            began.touch()
            time.sleep(0.1)
            ended.touch()

    with shared(tmp_path):
        pid = forked(first)
        while not began.exists():
            time.sleep(0.005)
        with unit_of_work():
            assert ended.exists()
        assert exit_of(pid) == 0


@pytest.mark.django_db(transaction=True)
def test_what_is_done_after_the_commit_keeps_nobody(tmp_path, monkeypatch):
    """A word to the queue, or the next unit, does not wait for the turn of its own process."""
    if connections["default"].vendor != "sqlite":
        pytest.skip("only an embedded database lets one writer in at a time")
    monkeypatch.setattr(turns, "_PATIENCE", 3600.0)
    path = tmp_path / "shared.sqlite3-turn"
    seen: list[bool] = []

    def afterwards() -> None:
        seen.append(is_free(path))
        with unit_of_work():
            seen.append(is_free(path))

    with shared(tmp_path), unit_of_work():
        seen.append(is_free(path))
        transaction.on_commit(afterwards)

    assert seen == [False, True, False]


@pytest.mark.django_db
def test_a_child_that_was_forked_under_it_does_not_keep_the_turn(embedded):
    reading, writing = os.pipe()
    with turns.turn_to_write():
        pid = os.fork()
        if not pid:
            os.close(writing)
            os.read(reading, 1)  # until the parent has looked
            os._exit(0)
    try:
        assert is_free(embedded)
    finally:
        os.close(writing)
        os.close(reading)
        os.waitpid(pid, 0)


@pytest.mark.django_db
@pytest.mark.parametrize("obstacle", ["a link", "a directory", "no place for it"])
def test_whoever_cannot_have_the_file_goes_on_without_it(embedded, obstacle, tmp_path, monkeypatch):
    elsewhere = tmp_path / "somebody's"
    if obstacle == "a link":
        embedded.symlink_to(elsewhere)
    elif obstacle == "a directory":
        embedded.mkdir()
    else:
        settings = connections["default"].settings_dict
        monkeypatch.setitem(settings, "NAME", str(tmp_path / "missing" / "house.sqlite3"))
    with turns.turn_to_write() as turn:
        assert not turn.is_held
    assert not elsewhere.exists()

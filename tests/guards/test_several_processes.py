"""Several runs beside each other in one thread: each with its pipes, its limits and its end."""

from __future__ import annotations

import time

import pytest

from guards.exceptions import BinaryNotAllowed, InvalidInput
from guards.process import Session, Several

pytestmark = pytest.mark.one_database


def all_of(several: Several, count: int) -> list[Session]:
    """The first so many that end, in their order."""
    ended: list[Session] = []
    until = time.monotonic() + 20
    while len(ended) < count and time.monotonic() < until:
        ended += several.ended(1.0)
    return ended


def test_each_gets_its_own_input_and_gives_its_own_output():
    with Several() as several:
        sessions = [
            several.start([["cat"], ["cat"]], stdin=f"{number}".encode() * 70_000, timeout=20)
            for number in range(3)
        ]
        assert set(all_of(several, 3)) == set(sessions)
    results = [session.result() for session in sessions]
    assert all(result.succeeded for result in results)
    assert [result.stdout for result in results] == [b"0" * 70_000, b"1" * 70_000, b"2" * 70_000]


def test_a_short_one_has_ended_while_a_long_one_runs():
    with Several() as several:
        several.start([["sleep", "20"]], timeout=30)
        short = several.start([["true"]], timeout=30)
        assert several.ended(10.0) == [short]
        assert several.ended(0.05) == []


def test_each_keeps_its_own_time_and_its_own_size():
    with Several() as several:
        slow = several.start([["sleep", "20"]], timeout=0.3)
        loud = several.start([["yes"]], timeout=20, max_output=1000)
        good = several.start([["sleep", "0.5"]], timeout=20)
        bad = several.start([["false"]], timeout=20)
        all_of(several, 4)
    assert slow.result().timed_out
    assert loud.result().overflowed
    assert good.result().succeeded
    assert bad.result().exit_code == 1


def test_nothing_of_them_stays_behind():
    with pytest.raises(KeyError), Several() as several:
        session = several.start([["sleep", "20"]], timeout=30)
        raise KeyError
    assert session.result().exit_code == -9


def test_one_that_does_not_start_leaves_the_others(monkeypatch):
    with Several() as several:
        good = several.start([["sleep", "0.1"]], timeout=20)
        with pytest.raises(BinaryNotAllowed):
            several.start([["true"], ["no-such-program"]], timeout=20)
        with pytest.raises(InvalidInput):
            several.start([], timeout=20)
        assert all_of(several, 1) == [good]
    assert good.result().succeeded

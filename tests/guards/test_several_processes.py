"""Several runs beside each other in one thread: each with its pipes, its limits and its end."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from guards.exceptions import BinaryNotAllowed, InvalidInput, ProcessFailed
from guards.process import Session, Several
from tests.guards.runs import started

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
            started(several, [["cat"], ["cat"]], stdin=f"{number}".encode() * 70_000, timeout=20)
            for number in range(3)
        ]
        assert set(all_of(several, 3)) == set(sessions)
    results = [session.result() for session in sessions]
    assert all(result.succeeded for result in results)
    assert [result.stdout for result in results] == [b"0" * 70_000, b"1" * 70_000, b"2" * 70_000]


def test_a_short_one_has_ended_while_a_long_one_runs():
    with Several() as several:
        started(several, [["sleep", "20"]], timeout=30)
        short = started(several, [["true"]], timeout=30)
        assert several.ended(10.0) == [short]
        assert several.ended(0.05) == []


def test_each_keeps_its_own_time_and_its_own_size():
    with Several() as several:
        slow = started(several, [["sleep", "20"]], timeout=0.3)
        loud = started(several, [["yes"]], timeout=20, max_output=1000)
        good = started(several, [["sleep", "0.5"]], timeout=20)
        bad = started(several, [["false"]], timeout=20)
        all_of(several, 4)
    assert slow.result().timed_out
    assert loud.result().overflowed
    assert good.result().succeeded
    assert bad.result().exit_code == 1


def test_nothing_of_them_stays_behind():
    with pytest.raises(KeyError), Several() as several:
        session = started(several, [["sleep", "20"]], timeout=30)
        raise KeyError
    assert session.result().exit_code == -9


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_one_that_cannot_be_ended_as_it_should_keeps_none_of_the_others(bad: int):
    with pytest.raises(OSError), Several() as several:
        sessions = [started(several, [["sleep", "20"]], timeout=30) for _ in range(3)]
        taken = next(iter(sessions[bad]._open))
        os.close(taken)
    left = [session for at, session in enumerate(sessions) if at != bad]
    assert [session.result().exit_code for session in left] == [-9, -9]
    assert not any(session._open for session in left)


def test_one_that_does_not_start_leaves_the_others(monkeypatch):
    with Several() as several:
        good = started(several, [["sleep", "0.1"]], timeout=20)
        with pytest.raises(BinaryNotAllowed):
            started(several, [["true"], ["no-such-program"]], timeout=20)
        with pytest.raises(InvalidInput):
            started(several, [], timeout=20)
        assert all_of(several, 1) == [good]
    assert good.result().succeeded


def test_those_that_are_ordered_start_at_the_same_time():
    with Several() as several:
        sessions = [several.order([["cat"], ["cat"]], stdin=b"x", timeout=20) for _ in range(3)]
        with pytest.raises(AssertionError):
            several.ended(0.0)  # one that nobody knows of could be taken for one that has ended
        for session in reversed(sessions):
            several.confirm(session)
        assert set(all_of(several, 3)) == set(sessions)
    assert all(session.result().succeeded for session in sessions)


@pytest.mark.parametrize("steps", [["broken"], ["sleep", "broken"], ["broken", "sleep"]])
def test_one_that_turns_out_not_to_start_leaves_the_others_and_nothing_of_itself(
    tmp_path: Path, settings, steps: list[str]
):
    broken = tmp_path / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    settings.ALLOWED_BINARIES = [*settings.ALLOWED_BINARIES, str(tmp_path)]
    lines = {"broken": [str(broken)], "sleep": ["sleep", "20"]}
    with Several() as several:
        bad = several.order([lines[step] for step in steps], timeout=30)
        good = several.order([["true"]], timeout=20)
        with pytest.raises(ProcessFailed):
            several.confirm(bad)
        several.confirm(good)
        assert all_of(several, 1) == [good]
        again = started(several, [["true"]], timeout=30)
        assert all_of(several, 1) == [again]


def test_what_was_ordered_and_never_confirmed_does_not_stay_behind(tmp_path: Path):
    with pytest.raises(KeyError), Several() as several:
        mark = tmp_path / "mark"
        several.order([["/bin/sh", "-c", f"touch {mark}; sleep 20; rm {mark}"]], timeout=30)
        until = time.monotonic() + 10
        while not mark.exists() and time.monotonic() < until:
            time.sleep(0.01)
        raise KeyError
    with Several() as several:
        other = started(several, [["true"]], timeout=20)
        assert all_of(several, 1) == [other]
    assert other.result().succeeded
    assert mark.exists()

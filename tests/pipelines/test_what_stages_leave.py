"""A stage's program leaves nothing that runs, whatever it did to be overlooked."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from guards import process
from pipelines.models import Pipeline
from pipelines.services import execution, intake, rules
from tests.pipelines.factories import OPERATOR, Desk, script

pytestmark = [pytest.mark.django_db, pytest.mark.one_database, pytest.mark.invariant(16)]


@pytest.fixture
def left(tmp_path: Path):
    """The pid of what the stage has left; killed at the end."""
    path = tmp_path / "left"
    yield lambda: int(path.read_text())
    if path.exists() and not process.is_dead(process.reference_of(int(path.read_text()))):
        os.kill(int(path.read_text()), signal.SIGKILL)


@pytest.fixture
def carry_out(desk: Desk, owner, server, scripts, tmp_path: Path) -> Callable[[str], Pipeline]:
    """A pipeline whose only stage is this script; `$LEFT` is where it says what it leaves."""

    def run(lines: str) -> Pipeline:
        text = lines.replace("$LEFT", f'"{tmp_path / "left"}"')
        owner.install("leaves", binary=script(scripts, "leaves", text), output_schema=...)
        rules.save_rule(name="l", match="leave", calls=[{"command": "leaves"}], by=OPERATOR)
        pipeline = intake.take_in(message_id=desk.message("leave").pk)
        assert pipeline is not None
        return execution.run(pipeline_id=pipeline.pk)

    return run


_WAITS = "while [ ! -s $LEFT ]; do sleep 0.01; done"
_OUT_OF_SIGHT = (
    "setsid env -i /bin/sh -c 'echo $$ > $LEFT; exec sleep 300' > /dev/null 2>&1 < /dev/null &\n"
)


def is_gone(pid: int) -> bool:
    until, reference = time.monotonic() + 20, process.reference_of(pid)
    while not process.is_dead(reference) and time.monotonic() < until:
        time.sleep(0.01)
    return process.is_dead(reference)


def test_a_daemon_without_its_session_and_its_mark_ends_with_its_stage(carry_out, left) -> None:
    pipeline = carry_out(f"{_OUT_OF_SIGHT}{_WAITS}\necho 1")
    assert pipeline.status == "completed"
    assert process.is_dead(process.reference_of(left()))


def test_a_stage_that_kills_its_supervisor_fails_and_leaves_nothing_that_is_marked(
    carry_out, left
) -> None:
    silent = "> /dev/null 2>&1 < /dev/null &\n"
    marked = f"setsid /bin/sh -c 'echo $$ > $LEFT; exec sleep 300' {silent}"
    pipeline = carry_out(f"{marked}{_WAITS}\nkill -9 $PPID\nexec sleep 300")
    assert pipeline.failing
    assert is_gone(left())

"""SIGKILL at every step of a pipeline: rows stay honest, nothing runs twice, one mail at most."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Set
from pathlib import Path
from typing import Any

import pytest

from tests.servers.processes import migrated

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).resolve().parents[2]
SIGKILL = -9

DONE = ("completed", ["first", "second"], ["result of second\n"])
FIXED_0 = ("interrupted", [], ["fixed"])
FIXED_1 = ("interrupted", ["first"], ["fixed"])
FIXED_2 = ("interrupted", ["first", "second"], ["fixed"])
SILENT = ("interrupted", ["first", "second"], [])
ANSWERED = ("interrupted", ["first", "second"], ["result of second\n"])
WAITING = ("waiting_approval", ["first", "second"], [])
UNASKED = ("interrupted", [], ["fixed"])
ASKED_IN_VAIN = ("interrupted", ["ask"], ["fixed"])
ASKED_AND_DONE = ("completed", ["ask", "ask"], ["an answer\n"])
MAIL_TO_BOB = "result of first\n"

#: point → (when the kill comes, what must be left: status, what ran, what was sent)
POINTS: dict[str, tuple[dict[str, Any], tuple[str, list[str], list[str]]]] = {
    "before-the-plan-is-committed": ({"before": "pipeline.planned"}, DONE),
    "planned": ({"after": "pipeline.planned"}, DONE),
    "before-the-claim-is-committed": ({"before": "pipeline.running"}, DONE),
    "claimed": ({"after": "pipeline.running"}, FIXED_0),
    "before-the-stage-is-claimed": ({"before": "stage.claimed"}, FIXED_0),
    "stage-claimed": ({"after": "stage.claimed"}, FIXED_0),
    "before-the-start-is-committed": ({"before": "stage.running"}, FIXED_0),
    "start-on-record": ({"after": "stage.running"}, FIXED_0),
    "about-to-run": ({"signal": "stage_starting"}, FIXED_0),
    "process-has-ended": ({"signal": "stage_returned"}, FIXED_1),
    "before-the-end-is-committed": ({"before": "stage.succeeded"}, FIXED_1),
    "end-on-record": ({"after": "stage.succeeded"}, FIXED_1),
    "second-start": ({"after": "stage.running", "nth": 2}, FIXED_1),
    "second-ended": ({"signal": "stage_returned", "nth": 2}, FIXED_2),
    "second-end-on-record": ({"after": "stage.succeeded", "nth": 2}, FIXED_2),
    "reply-started": ({"after": "stage.running", "nth": 3}, FIXED_2),
    "reply-drafted": ({"after": "outbound.composed"}, FIXED_2),
    "reply-takes-its-place": ({"status": "sending", "late": True}, FIXED_2),
    "reply-has-its-intent": ({"after": "effect.intent"}, FIXED_2),
    "before-the-mark-is-committed": ({"before": "effect.marked"}, FIXED_2),
    "reply-marked": ({"after": "effect.marked"}, SILENT),
    "contact-claimed": ({"signal": "contact_claimed"}, SILENT),
    "contact-returned": ({"signal": "contact_returned"}, ANSWERED),
    "before-the-outcome-is-committed": ({"before": "effect.accepted"}, ANSWERED),
    "outcome-on-record": ({"after": "effect.accepted"}, DONE),
    "before-the-hold-is-committed": (
        {"before": "hold.opened", "policy": "approve"},
        ("interrupted", ["first", "second"], []),
    ),
    "prepared-stage-claimed": ({"after": "stage.claimed", "asks": True}, UNASKED),
    "while-preparing": ({"inside": "prepare", "asks": True}, UNASKED),
    "prepared-stage-started": ({"after": "stage.running", "asks": True}, UNASKED),
    "before-the-wait-is-committed": (
        {"before": "stage.waiting_approval", "asks": True},
        ASKED_IN_VAIN,
    ),
    "waiting": ({"after": "stage.waiting_approval", "asks": True}, ASKED_AND_DONE),
    "before-the-answer-is-committed": ({"before": "stage.pending", "asks": True}, ASKED_AND_DONE),
    "answered": ({"after": "stage.pending", "asks": True}, ASKED_AND_DONE),
    "before-the-cancel-is-committed": ({"before": "pipeline.cancelled", "cancels": True}, DONE),
    "cancelled-and-not-told": (
        {"after": "pipeline.cancelled", "cancels": True},
        ("cancelled", [], ["fixed"]),
    ),
    "reply-held": ({"after": "hold.opened", "policy": "approve"}, WAITING),
    "send-drafted": ({"after": "outbound.composed", "sends": True}, FIXED_1),
    "send-has-its-intent": ({"after": "effect.intent", "sends": True}, FIXED_1),
    "send-marked": ({"after": "effect.marked", "sends": True}, FIXED_1),
    "send-contact-returned": (
        {"signal": "contact_returned", "sends": True},
        ("interrupted", ["first"], [MAIL_TO_BOB, "fixed"]),
    ),
    "send-on-record": (
        {"after": "effect.accepted", "sends": True},
        ("interrupted", ["first"], [MAIL_TO_BOB, "fixed"]),
    ),
    "send-held": (
        {"after": "hold.opened", "policy": "approve", "sends": True},
        ("interrupted", ["first"], []),
    ),
    "send-waits": (
        {"after": "stage.waiting_approval", "policy": "approve", "sends": True},
        ("waiting_approval", ["first"], []),
    ),
}
#: Points that leave the rows of another one which is killed in every run: for the long run.
ALIKE = frozenset(
    {
        "before-the-claim-is-committed",
        "before-the-stage-is-claimed",
        "before-the-start-is-committed",
        "about-to-run",
        "before-the-end-is-committed",
        "stage-claimed",
        "second-start",
        "second-ended",
        "second-end-on-record",
        "reply-started",
        "before-the-mark-is-committed",
        "contact-claimed",
        "before-the-outcome-is-committed",
        "prepared-stage-claimed",
        "prepared-stage-started",
        "before-the-answer-is-committed",
        "answered",
        "before-the-cancel-is-committed",
        "send-drafted",
        "send-has-its-intent",
        "send-on-record",
        "send-waits",
    }
)
Report = dict[str, Any]


@pytest.fixture(scope="module")
def report_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Report]:
    """What a point left, each in a database of its own: one driver for all workers of this run."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def found(name: str) -> Report:
        names = ALIKE if name in ALIKE else POINTS.keys() - ALIKE
        kept = shared / f"pipeline-crashes-{len(names)}.json"
        with (shared / "pipeline-crashes.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                kept.write_text(driven(names))
        report: Report = json.loads(kept.read_text())[name]
        return report

    return found


def driven(names: Set[str]) -> str:
    """What the driver says of these points."""
    with tempfile.TemporaryDirectory(prefix="csx-", dir="/tmp", ignore_cleanup_errors=True) as home:
        done = subprocess.run(
            [sys.executable, "-m", "tests.pipelines.crash_driver", home, str(migrated())],
            input=json.dumps({name: POINTS[name][0] for name in sorted(names)}),
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=280,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout


@pytest.mark.fault("sister-2", "sister-34", "queue-03")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.soak) if name in ALIKE else name for name in POINTS],
)
def test_a_killed_worker_leaves_an_honest_pipeline(report_of, name):
    found = report_of(name)
    status, ran, sent = POINTS[name][1]

    assert (found["killed"], found["recovered"]) == (SIGKILL, 0)
    assert (found["status"], found["runs"], found["sent"]) == (status, ran, sent), found
    assert found["attempts"] <= 1
    assert not found["notice_due"]
    assert found["log"]
    assert not {"claimed", "running"} & set(found["stages"].values())


def test_without_a_kill_everything_would_have_come_out(report_of):
    """The negative control: the driver's kills are what interrupts."""
    assert report_of("planned")["status"] == "completed"
    assert report_of("planned")["interrupted"] == 0

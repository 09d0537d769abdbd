"""`demo --once --json` tells the whole story, and its crash forms tell theirs.

The normal run tells it once, with the crash after the data; the whole story without one is what
test_up.py sees `up --demo` tell, and `make soak` tells it in each form.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from config.management.commands.demo import Command
from tests.servers import Installation
from tests.servers.processes import ROOT

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(200)]

_RULES = [
    "no-identity",
    "trust-too-low",
    "loop",
    "no-text",
    "recipient-not-bound",
    "signature-too-old",
    "replayed",
    "first-pass",
    "execute-permitted",
    "read-permitted",
    "no-permission",
    "no-write",
    "write-permitted",
]
_STATUSES = [
    "planned",
    "queued",
    "running",
    "waiting_approval",
    "completed",
    "failed",
    "cancelled",
    "interrupted",
]


def _demo(*options: str) -> tuple[int, str, str]:
    """The command as a person starts it."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "demo", *options],
        cwd="/",
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=180,
    )
    return done.returncode, done.stdout, done.stderr


def _here(*options: str) -> int:
    """The command in this process; the story, if it comes to one, has a process of its own."""
    with pytest.raises(SystemExit) as end:
        Command().run_from_argv(["manage.py", "demo", *options])
    return int(end.value.code or 0)


def _told(*options: str) -> dict[str, Any]:
    code, out, err = _demo("--once", "--json", *options)
    assert code == 0, out + err
    assert out.count("\n") == 1, "JSON and nothing else on standard output"
    report: dict[str, Any] = json.loads(out)
    assert (report["schema"], report["ok"], report["failures"]) == ("demo/1", True, [])
    assert list(report) == _KEYS
    assert all(set(r) == _REPLY_KEYS for r in report["replies"])
    assert report["trust"] == {"trusted": 1, "verified": 3, "unverified": 2, "untrusted": 1}
    assert report["decisions"] == dict.fromkeys(_RULES, 0) | {
        "execute-permitted": 2,
        "read-permitted": 2,
        "no-permission": 1,
        "trust-too-low": 2,
    }
    assert report["approvals"] == {"waiting_seen": 1, "approved": 1}
    assert report["events"] > 0
    assert report["log_verified"] is True
    return report


def _outcomes(report: dict[str, Any]) -> list[tuple[bool, str, int]]:
    return sorted((r["held"], r["phase"], r["smtp_accepted"]) for r in report["replies"])


@pytest.mark.soak
def test_the_story_comes_out_as_told():
    report = _told()
    assert report["pipelines"] == dict.fromkeys(_STATUSES, 0) | {"completed": 2}
    assert _outcomes(report) == [(False, "accepted", 1), (True, "accepted", 1)]
    assert report["crash"] is None


_KEYS = [
    "schema",
    "ok",
    "failures",
    "seconds",
    "trust",
    "decisions",
    "pipelines",
    "approvals",
    "replies",
    "events",
    "log_verified",
    "crash",
]
_REPLY_KEYS = {"message_id", "to", "held", "phase", "smtp_accepted"}


@pytest.mark.invariant(19, 20)
@pytest.mark.fault("send-01", "send-02")
@pytest.mark.parametrize(
    ("option", "crash"),
    [
        pytest.param(  # the walk of test_crash_walk kills a worker at this moment, too
            "--crash-after-dispatch",
            {"point": "after-mark", "phase": "unknown", "smtp_accepted": 0},
            marks=pytest.mark.soak,
        ),
        ("--crash-after-data", {"point": "after-data", "phase": "unknown", "smtp_accepted": 1}),
    ],
)
def test_a_worker_killed_in_the_middle_of_a_send_leaves_an_honest_unknown(
    installation: Installation, option: str, crash: dict[str, Any]
):
    report = _told(option, "--database", installation.env["DATABASE_URL"])
    assert report["crash"] == crash
    ended = {"completed": 1, "interrupted": 1}
    assert report["pipelines"] == dict.fromkeys(_STATUSES, 0) | ended
    assert _outcomes(report) == [(False, "unknown", crash["smtp_accepted"]), (True, "accepted", 1)]


def test_wrong_use_exits_2():
    assert _here("--json") == 2
    assert _here("--once", "--crash-after-data", "--crash-after-dispatch") == 2
    assert _here("--once", "--unknown") == 2
    assert _here("--unknown", "--crash-after-data") == 2


def test_what_is_missing_is_named_and_exits_3(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    code = _here("--once", "--json")
    out, err = capsys.readouterr()
    assert (code, out) == (3, "")
    assert "gnupg" in err


def test_a_database_that_is_in_use_is_left_alone(installation: Installation, capsys):
    installation.execute(
        "INSERT INTO auth_user (username, password, first_name, last_name, email,"
        " is_superuser, is_staff, is_active, date_joined)"
        " VALUES ('somebody', '', '', '', '', 0, 0, 1, '2026-01-01 00:00:00')"
    )
    code = _here("--once", "--json", "--database", installation.env["DATABASE_URL"])
    assert (code, capsys.readouterr().out) == (2, "")
    assert installation.rows("SELECT username FROM auth_user") == [("somebody",)]
    assert installation.rows("SELECT count(*) FROM guards_identity") == [(0,)]


@pytest.mark.invariant(20)
def test_a_lost_answer_is_told_honestly_and_found_again(installation: Installation, capsys):
    database = installation.env["DATABASE_URL"]
    Command().run_from_argv(["manage.py", "demo", "--unknown", "--json", "--database", database])
    out, _ = capsys.readouterr()
    assert out.count("\n") == 1, "JSON and nothing else on standard output"
    effect = {"phase": "unknown", "reason": "connection-lost"}
    assert json.loads(out) == {
        "schema": "demo-unknown/1",
        "ok": True,
        "posts": 1,
        "effect": effect,
        "observation": {"outcome": "verified_sent_observation"},
        "effect_after": effect,
    }


@pytest.mark.soak
def test_the_story_of_a_lost_answer_reads_in_a_few_lines():
    code, out, _ = _demo("--unknown")
    assert code == 0
    assert out.splitlines()[0] == "POSTs counted at the provider: 1"
    assert out.splitlines()[-1] == "as told"

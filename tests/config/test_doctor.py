"""`doctor` and `up` say what is wrong and what to do about it, to people and to programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from config.management.commands import doctor, up


@pytest.fixture
def fresh(db: None, settings: Any, tmp_path: Path) -> None:
    """An installation that was migrated and has nothing else."""
    settings.ARTIFACT_KEY_REF = f"file:{tmp_path}/artifact.key"
    settings.INSTALLATION_KEY_REF = f"file:{tmp_path}/own.pem"


def ask_the_doctor(*options: str) -> int:
    with pytest.raises(SystemExit) as end:
        doctor.Command().run_from_argv(["manage.py", "doctor", *options])
    return int(end.value.code or 0)


@pytest.mark.only_on("sqlite")
def test_the_doctor_says_what_to_do_and_sees_a_dropped_trigger(fresh: None, capsys: Any) -> None:
    assert ask_the_doctor() == 1
    text = capsys.readouterr().out
    assert "✗ worker" in text and "→" in text
    assert "✓ triggers" in text
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' ORDER BY name")
        (name,) = cursor.fetchone()
        cursor.execute(f'DROP TRIGGER "{name}"')
    assert ask_the_doctor("--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    faults = {f["name"]: f for f in report["findings"] if f["state"] == "fault"}
    assert {"worker", "artifact key", "installation key", "triggers"} <= set(faults)
    assert all(fault["remedy"] for fault in faults.values())
    states = {f["name"]: f["state"] for f in report["findings"]}
    assert states["migrations"] == states["gpgv"] == "ok"


def test_a_missing_prerequisite_of_the_demo_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit) as end:
        up.Command().run_from_argv(["manage.py", "up", "--demo"])
    assert end.value.code == 3
    assert "gnupg" in capsys.readouterr().err

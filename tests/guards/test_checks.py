"""System checks: what would do harm unseen is refused before it starts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.db.backends.sqlite3.base import DatabaseWrapper

from guards import checks, signals, triggers

SOUND: dict[str, Any] = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
}


@contextlib.contextmanager
def sqlite(path: Path, options: dict[str, Any]) -> Iterator[DatabaseWrapper]:
    """A connection of its own, as Django opens it with these options."""
    settings = connection.settings_dict | {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(path / "db.sqlite3"),
        "OPTIONS": options,
    }
    opened = DatabaseWrapper(settings, alias="other")
    try:
        yield opened
    finally:
        opened.close()


def faults(path: Path, options: dict[str, Any]) -> list[str]:
    with sqlite(path, options) as opened:
        return [str(message.id) for message in checks._pragma_faults(opened)]


@pytest.mark.fault("queue-06", "queue-07")
@pytest.mark.django_db
@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, []),
        ({"timeout": 1}, ["guards.E002"]),
        ({"transaction_mode": None}, ["guards.E003"]),
        ({"init_command": "PRAGMA synchronous=FULL;"}, ["guards.E004"]),
        ({"init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;"}, ["guards.E005"]),
        (
            {"init_command": SOUND["init_command"] + "PRAGMA busy_timeout=10;"},
            ["guards.E002"],
        ),
    ],
)
def test_it_reads_the_pragmas_that_really_hold(
    tmp_path: Path, change: dict[str, Any], found: list[str]
) -> None:
    assert faults(tmp_path, SOUND | change) == found


@pytest.mark.django_db
def test_the_database_of_this_run_is_sound() -> None:
    assert checks.check_sqlite(None, databases=["default"]) == []
    assert checks.check_triggers(None, databases=["default"]) == []
    assert checks.check_sqlite(None, databases=None) == []


@pytest.mark.django_db
def test_lifted_triggers_are_warned_of_by_name() -> None:
    triggers.lift("guards")
    (warning,) = checks.check_triggers(None, databases=["default"])
    assert warning.id == "guards.W004"
    assert "cs_guards_decision_keeps_on_update" in warning.msg
    assert "migrate" in str(warning.hint)
    triggers.install("guards")


@pytest.mark.parametrize("name", ["decided", "key_changed", "permission_changed", "unit_closing"])
def test_an_installation_that_records_nothing_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listen(**_: object) -> None:
        """Stands for the event log."""

    for recorded, signal in checks._RECORDED:
        signal.connect(listen)
        assert recorded in vars(signals)
    try:
        assert checks.check_receivers(None) == []
        signal = getattr(signals, name)
        monkeypatch.setattr(signal, "receivers", [])
        signal.sender_receivers_cache.clear()
        (error,) = checks.check_receivers(None)
        assert error.id == "guards.E001"
        assert name in error.msg
    finally:
        monkeypatch.undo()
        for _, signal in checks._RECORDED:
            signal.disconnect(listen)

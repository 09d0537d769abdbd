"""`up --demo`: starts everything, restarts what dies, stops all, and goes on where it was."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest

from config.demo.world import World
from tests.servers import Installation
from tests.servers.presence import free_port, wait_until
from tests.servers.processes import Process

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]


@pytest.fixture
def house(short_directory: Path) -> Installation:
    """Not migrated: `up` does that."""
    owner = World(short_directory / "demo").owner_settings()
    return Installation(short_directory, **owner)


@pytest.fixture(autouse=True)
def _end(house: Installation):
    yield
    for process in house.processes:
        process.kill()
    for pid in _of(house):
        os.kill(pid, signal.SIGKILL)


def _of(house: Installation) -> list[int]:
    """Every live process whose environment names this installation's data directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes()
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if f"DATA_DIR={house.directory}".encode() in environment.split(b"\0") and state != "Z":
            found.append(int(entry.name))
    return found


def _child(house: Installation, word: str) -> int | None:
    """The main process of a child: the one with that command and the lowest pid."""
    pids = [
        pid
        for pid in _of(house)
        if f"manage.py\0{word}" in Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    ]
    return min(pids, default=None)


def _up(house: Installation, port: int) -> Process:
    process = house.start("up", "--demo", "--port", str(port))
    wait_until(lambda: "The console is at" in process.output() or not process.is_alive(), "up", 90)
    assert process.is_alive(), process.output()
    return process


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
            return json.load(answer)["status"] == "ready"
    except OSError:
        return False


def _told(house: Installation) -> bool:
    """Whether seven mails are stored, one pipeline is completed, and one waits."""
    path = f"file:{house.directory}/countersign.sqlite3?mode=ro"
    with sqlite3.connect(path, uri=True, timeout=20) as connection:
        [(mails,)] = connection.execute("SELECT count(*) FROM mail_message").fetchall()
        statuses = connection.execute("SELECT status FROM pipelines_pipeline").fetchall()
    return (mails, sorted(statuses)) == (7, [("completed",), ("waiting_approval",)])


def test_it_starts_restarts_stops_and_goes_on(house: Installation):
    port = free_port()
    first = _up(house, port)
    assert re.search(r"shown once\): operator / \S{12,}", first.output())
    wait_until(lambda: _told(house), "the story", 60)
    wait_until(lambda: _ready(port), "readiness")
    doctor = house.manage("doctor", "--json", check=False)
    assert doctor.returncode == 0, doctor.stdout

    os.kill(_child(house, "worker"), signal.SIGKILL)
    wait_until(lambda: "worker started again" in first.output(), "the restart")
    assert "worker ended (by SIGKILL)" in first.output()

    first.popen.send_signal(signal.SIGINT)
    assert first.popen.wait(20) == 0, first.output()
    assert _of(house) == []

    second = _up(house, port)
    assert "shown once" not in second.output()
    wait_until(lambda: _ready(port), "readiness")
    assert _told(house), "nothing was posted, stored or run again"

    second.popen.kill()
    wait_until(lambda: _of(house) == [], "the end of the children of a killed supervisor", 30)


def test_a_missing_prerequisite_is_named(house: Installation, tmp_path: Path):
    house.env["PATH"] = str(tmp_path)
    done = house.manage("up", "--demo", check=False)
    assert done.returncode == 3
    assert "gnupg" in done.stderr


def test_the_doctor_says_what_to_do_and_sees_a_dropped_trigger(house: Installation):
    with house:
        text = house.manage("doctor", check=False).stdout
        assert "✗ worker" in text and "→" in text
        assert "✓ triggers" in text
        with closing(sqlite3.connect(house.directory / "countersign.sqlite3")) as database:
            query = "SELECT name FROM sqlite_master WHERE type = 'trigger' ORDER BY name LIMIT 1"
            [(name,)] = database.execute(query).fetchall()
            database.execute(f'DROP TRIGGER "{name}"')
        done = house.manage("doctor", "--json", check=False)
    report = json.loads(done.stdout)
    assert (done.returncode, report["ok"]) == (1, False)
    faults = {f["name"]: f for f in report["findings"] if f["state"] == "fault"}
    assert {"worker", "artifact key", "installation key", "triggers"} <= set(faults)
    assert all(fault["remedy"] for fault in faults.values())
    states = {f["name"]: f["state"] for f in report["findings"]}
    assert states["migrations"] == states["gpgv"] == "ok"

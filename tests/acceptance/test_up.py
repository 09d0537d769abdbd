"""`up --demo` as a person runs it: told, used in a browser, bereft of children, stopped, up again.

One test, since the demo's mail ports are always the same: two of them would wait for each other.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from config.demo.world import World
from tests.acceptance.browser import Console, chromium
from tests.servers import Installation
from tests.servers.presence import free_port, require_binaries, wait_until
from tests.servers.processes import Process

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.timeout(240),
]


@dataclass
class House:
    """A demo that is up: its installation, its port, the process of `up`, the operator's login."""

    installation: Installation
    port: int
    process: Process
    password: str

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.process = _up(self.installation, self.port)

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.port}/readyz", timeout=10
            ) as answer:
                return bool(json.load(answer)["status"] == "ready")
        except OSError:
            return False

    def processes(self) -> list[int]:
        """Every live process whose environment names this installation's data directory."""
        mark = f"DATA_DIR={self.installation.directory}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                environment = (entry / "environ").read_bytes()
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            if mark in environment.split(b"\0") and state != "Z":
                found.append(int(entry.name))
        return found

    def child(self, word: str) -> int:
        """The main process of a child: the one with that command and the lowest pid."""
        return min(
            pid
            for pid in self.processes()
            if f"manage.py\0{word}" in Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
        )

    def done(self) -> list[list[tuple[Any, ...]]]:
        """How much was stored, run and sent."""
        tables = ("mail_message", "pipelines_pipeline", "pipelines_stage", "mail_outbound")
        return [self.installation.rows(f"SELECT id FROM {one} ORDER BY id") for one in tables]  # noqa: S608


def _up(installation: Installation, port: int) -> Process:
    process = installation.start("up", "--demo", "--port", str(port))
    wait_until(lambda: "The console is at" in process.output() or not process.is_alive(), "up", 90)
    assert process.is_alive(), process.output()
    return process


def _has_told_its_story(installation: Installation) -> bool:
    """Seven mails are stored, one pipeline is completed and its reply left, and one waits."""
    statuses = installation.rows("SELECT status FROM pipelines_pipeline ORDER BY status")
    return (
        installation.rows("SELECT count(*) FROM mail_message") == [(7,)]
        and statuses == [("completed",), ("waiting_approval",)]
        and installation.rows("SELECT phase FROM approvals_effect") == [("accepted",)]
    )


@pytest.fixture
def house() -> Iterator[House]:
    """Not migrated, and without keys: `up` does all that."""
    require_binaries("gpg")
    directory = Path(tempfile.mkdtemp(prefix="cs-", dir="/tmp"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        installation = Installation(directory, **World(directory / "demo").owner_settings())
        port = free_port()
        process = _up(installation, port)
        login = re.search(r"shown once\): operator / (\S{12,})", process.output())
        assert login is not None, process.output()
        made = House(installation, port, process, login[1])
        stack.callback(_end, made)
        wait_until(lambda: _has_told_its_story(installation), "the story", 60)
        yield made


def _end(house: House) -> None:
    house.process.stop()
    for pid in house.processes():
        os.kill(pid, signal.SIGKILL)


@contextmanager
def _browser(house: House) -> Iterator[Console]:
    """The operator's browser, logged in."""
    require_binaries("chromium", "chromedriver")
    with chromium(house.address) as made:
        made.log_in("operator", house.password)
        yield made


def read_why_the_signature_is_bad(console: Console) -> None:
    console.open("/admin/")
    row = console.find("li[data-need=held-mail]", "The signature does not match the text")
    console.driver.execute_script("arguments[0].querySelector('a.cs-button').click()", row)
    assert "does not match the text" in console.find("#cs-trust", "Untrusted").text
    assert "BADSIG" in console.text()
    assert "trust-too-low" in console.text()


def approve_the_held_reply(console: Console) -> None:
    console.open("/admin/")
    row = console.find("li[data-need=held-reply]", "Open for review")
    console.driver.execute_script("arguments[0].querySelector('button').click()", row)
    leaving = console.find(".cs-leaving", "References").text
    for field in ("From", "To", "Subject", "In-Reply-To", "Message-ID"):
        assert field in leaving
    assert console.find("#cs-clock", ":")
    console.find("button[value=approve]").click()
    console.find("[role=status]", "by operator:operator")


def read_why_approve_and_see_it_leave(console: Console) -> None:
    read_why_the_signature_is_bad(console)

    console.open("/admin/")
    console.find("li[data-need=held-reply]", "Open for review")
    console.find("#cs-feed-state", "live")
    console.driver.execute_script("window.sameDocument = true")
    feed = console.driver.current_window_handle
    newest = int(console.find("#cs-feed > li").get_attribute("data-seq") or 0)

    console.driver.switch_to.new_window("tab")
    approve_the_held_reply(console)

    console.driver.switch_to.window(feed)
    arrived = console.find("#cs-feed > li[data-kind='effect.accepted'].cs-fresh")
    assert int(arrived.get_attribute("data-seq") or 0) > newest
    assert console.driver.execute_script("return window.sameDocument") is True
    console.driver.execute_script("document.activeElement.blur()")
    console.find("#cs-needs-box", "waiting")
    assert console.errors() == []


def fit_a_telephone(console: Console) -> None:
    console.show(width=390, height=844, dark=True)
    console.open("/admin/")
    console.find("li[data-need=held-mail]")
    for path in (
        "/admin/",
        "/admin/mail/message/",
        "/admin/mail/message/1/change/",
        "/admin/pipelines/pipeline/",
        "/admin/mail/account/add/",
        "/admin/approvals/hold/",
    ):
        console.open(path)
        assert console.width_left_over() == 0, path
    assert console.errors() == []


def restart_stop_and_go_on(house: House) -> None:
    wait_until(house.is_ready, "readiness")
    doctor = house.installation.manage("doctor", "--json", check=False)
    assert doctor.returncode == 0, doctor.stdout

    os.kill(house.child("worker"), signal.SIGKILL)
    wait_until(lambda: "worker started again" in house.process.output(), "the restart")
    assert "worker ended (by SIGKILL)" in house.process.output()

    house.process.popen.send_signal(signal.SIGINT)
    assert house.process.popen.wait(20) == 0, house.process.output()
    assert house.processes() == []

    done = house.done()
    house.start()
    assert "shown once" not in house.process.output()
    wait_until(house.is_ready, "readiness")
    assert house.done() == done, "nothing was posted, stored or run again"

    house.process.popen.kill()
    wait_until(lambda: house.processes() == [], "the end of the children of a killed one", 30)


@pytest.mark.browser
@pytest.mark.invariant(25)
@pytest.mark.fault("feed-04", "approval-02")
def test_a_person_brings_it_up_reads_why_approves_and_finds_it_again(
    house: House, subtests: pytest.Subtests
):
    with _browser(house) as console:
        with subtests.test("reads why, approves, and sees it leave"):
            read_why_approve_and_see_it_leave(console)
        with subtests.test("the console fits a telephone and keeps to its policy"):
            fit_a_telephone(console)
    with subtests.test("it is well, restarts what died, stops, and goes on"):
        restart_stop_and_go_on(house)

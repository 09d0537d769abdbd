"""What the doctor says about workers: nothing while no command needs them, then what is wrong."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from config.doctor import workers
from config.doctor.findings import Finding, State
from guards import process
from guards.models import Heartbeat
from guards.process import ProcessResult
from pipelines.models import Command
from tests.servers.presence import find_binary, free_port, require_binaries

pytestmark = pytest.mark.one_database


@pytest.fixture
def needed(db: None) -> Command:
    """A signed command of the claude runner."""
    return _command("ok")


def _command(state: str, **budget: object) -> Command:
    document = {"schema": "command/1", "name": "review", "runner": "claude", "budget": budget}
    return Command.objects.create(
        name="review", document=document, digest="d" * 64, runner="claude", signature_state=state
    )


def found(name: str) -> list[Finding]:
    return list(dict(workers.LOOKS)[name]())


def program(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "claude"
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return str(path)


class _Mcp(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.send_response(int(self.path.rsplit("/", 1)[-1]))
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def listening() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Mcp)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_nothing_is_said_while_no_signed_command_uses_the_runner(db: None, settings):
    settings.CLAUDE_BINARY, settings.PLANNER = "/nowhere/claude", ""
    _command("missing")
    assert [found(name) for name, _ in workers.LOOKS] == [[]] * 5


def test_a_planner_needs_workers_too(db: None, settings):
    settings.CLAUDE_BINARY, settings.PLANNER = "/nowhere/claude", "claude"
    [finding] = found("claude")
    assert (finding.state, bool(finding.remedy)) == (State.FAULT, True)


def test_the_real_program_names_its_version(needed: Command, settings):
    require_binaries("claude")
    settings.CLAUDE_BINARY = find_binary("claude")
    [finding] = found("claude")
    assert finding.state == State.OK and "Claude Code" in finding.detail


@pytest.mark.parametrize(
    ("said", "code", "state"),
    [
        (b"2.1.332 (Claude Code)", 0, State.OK),
        (b"2.1.294 (Claude Code)", 0, State.WARNING),
        (b"no such thing", 0, State.FAULT),
        (b"2.1.332", 1, State.FAULT),
    ],
)
def test_a_program_is_asked_what_it_is(said: bytes, code: int, state: State):
    done = ProcessResult(code, said, b"", timed_out=False, overflowed=False, duration=0.1)
    assert workers.version_finding(Path("/usr/bin/claude"), done).state == state


def test_another_program_under_that_name_is_a_fault(needed: Command, settings):
    settings.CLAUDE_BINARY = "/bin/true"
    [finding] = found("claude")
    assert finding.state == State.FAULT and "does not name its version" in finding.detail


def test_a_script_is_no_program_for_workers(needed: Command, settings, tmp_path: Path):
    settings.CLAUDE_BINARY = program(tmp_path, "echo 2.1.332")
    [finding] = found("claude")
    assert finding.state == State.FAULT and "is a script" in finding.detail


@pytest.mark.parametrize(("status", "state"), [(401, State.OK), (404, State.FAULT)])
def test_the_mcp_server_is_known_by_asking_for_a_token(
    needed: Command, settings, listening: str, status: int, state: State
):
    settings.MCP_URL = f"{listening}/{status}"
    [finding] = found("MCP server")
    assert finding.state == state, finding


def test_a_host_that_is_refused_is_to_be_added(needed: Command, settings, listening: str):
    settings.MCP_URL = f"{listening}/421"
    [finding] = found("MCP server")
    assert finding.remedy == "Add 127.0.0.1 to ALLOWED_HOSTS."


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/mcp", "", "http://127.0.0.1:PORT/mcp"])
def test_an_mcp_server_that_cannot_be_reached_is_a_fault(needed: Command, settings, url: str):
    settings.MCP_URL = url.replace("PORT", str(free_port()))
    [finding] = found("MCP server")
    assert finding.state == State.FAULT and "does not answer" in finding.detail


@contextmanager
def worker_told(url: str | None) -> Iterator[None]:
    """A living process of this host that says it is the worker, started with that MCP_URL."""
    told = {} if url is None else {"MCP_URL": url}
    with subprocess.Popen(["sleep", "60"], env={"PATH": os.environ["PATH"], **told}) as child:
        Heartbeat.objects.create(holder=process.reference_of(child.pid), role="worker")
        try:
            yield
        finally:
            child.kill()


def test_it_is_asked_where_the_worker_that_runs_was_told(
    needed: Command, settings, monkeypatch, listening: str
):
    monkeypatch.delenv("MCP_URL", raising=False)
    settings.MCP_URL = f"http://127.0.0.1:{free_port()}/mcp"
    with worker_told(f"{listening}/401"):
        [finding] = found("MCP server")
    assert finding.state == State.OK
    assert finding.detail.startswith(f"{listening}/401 (as the worker that runs was told) answers")


def test_what_the_operator_set_counts_before_it(
    needed: Command, settings, monkeypatch, listening: str
):
    settings.MCP_URL = f"{listening}/401"
    monkeypatch.setenv("MCP_URL", settings.MCP_URL)
    with worker_told("http://127.0.0.1:1/mcp"):
        [finding] = found("MCP server")
    assert finding.detail.startswith(f"{listening}/401 (MCP_URL) answers")


def test_without_a_worker_that_was_told_the_default_is_asked_and_called_that(
    needed: Command, settings, monkeypatch, listening: str
):
    monkeypatch.delenv("MCP_URL", raising=False)
    settings.MCP_URL = f"{listening}/401"
    said = f"{listening}/401 (MCP_URL is not set: its default) answers, and asks for a token"
    with worker_told(None):
        assert [finding.detail for finding in found("MCP server")] == [said]
    with worker_told("http://127.0.0.1:1/mcp"):
        pass  # it has ended
    assert [finding.detail for finding in found("MCP server")] == [said]


def test_a_working_sandbox_is_found_by_using_it(needed: Command, settings):
    require_binaries("bwrap")
    settings.CLAUDE_SANDBOX = "required"
    [finding] = found("sandbox")
    assert finding.state == State.OK


def test_a_missing_sandbox_is_a_fault(needed: Command, settings, monkeypatch, tmp_path: Path):
    settings.CLAUDE_SANDBOX = "required"
    monkeypatch.setattr("pipelines.runners.claude.sandbox._SYSTEM_PATH", str(tmp_path))
    [finding] = found("sandbox")
    assert finding.state == State.FAULT and "is not installed" in finding.detail


def test_a_sandbox_that_is_off_is_warned_about(needed: Command, settings):
    settings.CLAUDE_SANDBOX = "off"
    [finding] = found("sandbox")
    assert finding.state == State.WARNING


@pytest.mark.parametrize(("reference", "state"), [("env:HOME", "ok"), ("env:NO_SUCH", "fault")])
def test_the_key_of_workers_resolves_or_not(needed: Command, settings, reference: str, state: str):
    settings.CLAUDE_API_KEY_REF = reference
    [finding] = found("claude API key")
    assert finding.state == state


@pytest.mark.parametrize(
    ("identity", "command", "run", "state"),
    [
        (50.0, 25.0, 5, State.OK),
        (0.0, 25.0, 5, State.FAULT),
        (50.0, -1.0, 5, State.FAULT),
        (50.0, 2.0, 5, State.WARNING),
    ],
)
def test_budgets_leave_room_for_a_run(db: None, settings, identity, command, run, state):
    settings.MISSION_DAILY_USD_PER_IDENTITY = identity
    settings.MISSION_DAILY_USD_PER_COMMAND = command
    _command("ok", max_usd=run)
    [finding] = found("budgets")
    assert finding.state == state, finding

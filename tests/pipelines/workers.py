"""The real `claude` program as a stage's worker: our MCP server and the stand-in model beside it.

Both databases are shared with the server's threads for the time of a test. The model is a script:
it obeys whatever the test has it ask for, which is what a worker's walls are for.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from django.db import connections

from config.mcp import McpApplication
from pipelines.models import Mission
from pipelines.runners.claude.runner import ClaudeRunner
from pipelines.types import Job, RunResult
from tests.pipelines.factories import MissionDesk, claude
from tests.servers.claude import FAKE_KEY, require_claude
from tests.servers.messages_api import MessagesApi, Say, Turn, Turns, call, say

SHOW, RESULT = "mcp__countersign__mission_show", "mcp__countersign__mission_result"


def reads() -> Say:
    """A turn: the worker reads its contract."""
    return call(SHOW)


def hands_in(**fields: Any) -> Say:
    """A turn: the worker hands in its result, one that passes until a test changes it."""
    document = {"verdict": "pass", "confidence": 0.9, "prose": "Done.", "output": "done", **fields}
    return call(RESULT, result={k: v for k, v in document.items() if v is not ...})


def shell(command: str) -> Say:
    """A turn: the worker runs a command line."""
    return call("Bash", command=command, description="what the test wants")


@dataclass
class Workshop:
    """What one test's workers use. `directory` and `project` are where they may work."""

    api: MessagesApi
    home: Path
    settings: Any
    url: str
    runner: ClaudeRunner = field(default_factory=ClaudeRunner)

    def __post_init__(self) -> None:
        self.directory = self.home / "pipelines" / "p"
        self.project = self.home / "project"
        for place in (self.directory, self.project):
            place.mkdir(parents=True)
        secrets = self.home / "secrets"
        secrets.mkdir(mode=0o700)
        self.key_file = secrets / "claude-api-key"
        self.key_file.write_text(FAKE_KEY)
        self.key_file.chmod(0o600)
        for name, value in {
            "CLAUDE_BINARY": require_claude(),
            "CLAUDE_BASE_URL": self.api.url,
            "CLAUDE_API_KEY_REF": f"file:{self.key_file}",
            "CLAUDE_ALLOWED_HOSTS": [],
            "CLAUDE_SANDBOX": "required",
            "MCP_URL": self.url,
            "SECRETS_DIR": secrets,
            "PIPELINES_DIR": self.home / "pipelines",
            "MISSIONS_DIR": self.home / "missions",
        }.items():
            setattr(self.settings, name, value)

    def desk(self, **fields: Any) -> MissionDesk:
        """A claimed stage: without a project it works in its pipeline's directory."""
        document = claude(**{"project": ..., "write_set": ..., **fields})
        place = self.project if "project" in document else self.directory
        return MissionDesk(document, directory=self.directory, workplace=place)

    def job(self, **fields: Any) -> Job:
        """A job that was prepared: its mission is open."""
        job = self.desk(**fields).job()
        self.runner.prepare(job)
        return job

    def run(self, *turns: Turn, **fields: Any) -> tuple[RunResult, Mission]:
        """A worker that does these turns; how its stage ended, and its mission."""
        self.api.scripts[""] = Turns(*turns, say("That was all."))
        job = self.job(**fields)
        result = self.runner.run(job)
        return result, Mission.objects.get(stage_id=job.stage)

    def told(self, tool: str = "Bash") -> list[str]:
        """What that tool has answered to the model, in order."""
        return [one.text for one in self.api.turns[-1].results if one.tool == tool]


@contextmanager
def mcp_server() -> Iterator[str]:
    """Our MCP server on a free loopback port, in threads of this process; its URL."""
    config = uvicorn.Config(McpApplication(), port=0, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.run, daemon=True)
    usual = connections.databases["default"]["CONN_MAX_AGE"]
    connections.databases["default"]["CONN_MAX_AGE"] = 0  # its threads outlive the test's database
    thread.start()
    while not server.started:
        thread.join(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.should_exit = True
        thread.join(10)
        connections.databases["default"]["CONN_MAX_AGE"] = usual

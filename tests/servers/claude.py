"""The real `claude` program for tests: found, isolated, and talking to our stand-in alone.

It comes with the `claude-agent-sdk` package, which brings the same binary as the official
installer. No test ever uses a person's own HOME, settings or key.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.servers.presence import missing

#: No key that anybody would accept; the stand-in sees it.
FAKE_KEY = "sk-ant-a-key-of-a-test"

#: Without network beside its base URL, without updates, and without asking twice.
QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "CLAUDE_CODE_MAX_RETRIES": "0",
}


@cache
def find_claude() -> str | None:
    """The binary of the `claude-agent-sdk` bundle, without importing the package."""
    found = importlib.util.find_spec("claude_agent_sdk")
    for place in (found.submodule_search_locations or []) if found else []:
        binary = Path(place) / "_bundled" / "claude"
        if os.access(binary, os.X_OK):
            return str(binary)
    return None


def require_claude() -> str:
    """The binary's path; without it the test is skipped by name, and fails in CI."""
    binary = find_claude()
    if binary is None:
        missing("claude (the claude-agent-sdk package)")
    return binary


@dataclass
class Run:
    """One run as it ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What `--output-format stream-json` (or `json`) printed."""
        return [json.loads(line) for line in self.stdout.splitlines() if line.strip()]

    @property
    def result(self) -> dict[str, Any]:
        """The last result line."""
        return [line for line in self.lines if line.get("type") == "result"][-1]


@dataclass
class Claude:
    """The program in a HOME and a working directory of its own."""

    binary: str
    home: Path
    directory: Path
    base_url: str
    key: str = FAKE_KEY
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """All that the program sees."""
        return {
            "PATH": os.defpath,
            "HOME": str(self.home),
            "ANTHROPIC_BASE_URL": self.base_url,
            "ANTHROPIC_API_KEY": self.key,
            **QUIET,
            **self.extra,
        }

    def run(self, *arguments: str, prompt: str, timeout: float = 30.0) -> Run:
        """One headless run to its end."""
        done = subprocess.run(
            [self.binary, "-p", *arguments, "--", prompt],
            env=self.environment,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        return Run(done.returncode, done.stdout, done.stderr)

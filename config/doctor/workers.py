"""What commands of the `claude` runner need: the program, its key, its sandbox, our MCP server.

Nothing of it is looked at while no signed command uses the runner and no planner does.
"""

from __future__ import annotations

import http.client
import re
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings

from config.doctor import running
from config.doctor.findings import Finding, fault, ok, warning
from config.doctor.machine import Look
from guards import process, secrets
from guards.exceptions import CountersignError
from guards.process import ProcessResult
from pipelines import selectors
from pipelines.services import workers

#: The oldest Claude Code whose hooks may be told to block when they fail.
_OLDEST_CLAUDE = (2, 1, 295)
#: The longest wait for a program to name its version, for bubblewrap, for an HTTP answer; seconds.
_PATIENCE = 20.0
#: What our MCP server says to somebody who brings no token.
_ANSWERS = frozenset({401, 403})


def is_used() -> bool:
    """Whether anything here would start a worker."""
    return settings.PLANNER == "claude" or selectors.signed_claude_commands().exists()


def _program() -> Iterator[Finding]:
    if not is_used():
        return
    try:
        found = workers.program()
    except CountersignError as problem:
        remedy = "Install Claude Code (npm install --global @anthropic-ai/claude-code), or correct"
        yield fault("claude", problem.detail, f"{remedy} CLAUDE_BINARY.")
        return
    yield version_finding(found, _said_version(found))


def version_finding(found: Path, done: ProcessResult) -> Finding:
    """What the program's own words about its version come to."""
    version = done.stdout.decode("utf-8", "replace").strip()
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if not done.succeeded or numbers is None:
        said = f"{found} does not name its version (exit code {done.exit_code})"
        return fault("claude", said, "Install Claude Code anew, or correct CLAUDE_BINARY.")
    if tuple(map(int, numbers.groups())) < _OLDEST_CLAUDE:
        oldest = ".".join(map(str, _OLDEST_CLAUDE))
        return warning("claude", f"{version} is old", f"Install {oldest} or newer.")
    return ok("claude", f"{version} at {found}")


def _said_version(program: Path) -> ProcessResult:
    """Ask in a home of its own: it would write its settings into ours."""
    with tempfile.TemporaryDirectory(prefix="cs-doctor-") as home:
        quiet = {"HOME": home, "DISABLE_AUTOUPDATER": "1"}
        return process.run([str(program), "--version"], timeout=_PATIENCE, env=quiet, vouched=True)


def _api_key() -> Iterator[Finding]:
    if not is_used():
        return
    try:
        secrets.resolve(settings.CLAUDE_API_KEY_REF)
    except CountersignError as problem:
        remedy = "Make CLAUDE_API_KEY_REF resolve: workers' requests carry it."
        yield fault("claude API key", problem.detail, remedy)
    else:
        yield ok("claude API key", "resolves")


def _sandbox() -> Iterator[Finding]:
    if not is_used():
        return
    if settings.CLAUDE_SANDBOX == "off":
        said = "CLAUDE_SANDBOX is off: workers read and write whatever this account can"
        yield warning("sandbox", said, "Install bubblewrap and remove the setting.")
        return
    hindrance = workers.sandbox_hindrance()
    if hindrance:
        remedy = (
            "Install bubblewrap and allow user namespaces; docs/operations.md#workers says how."
        )
        yield fault("sandbox", hindrance, remedy)
    else:
        yield ok("sandbox", "bubblewrap confines a program of this account")


def _mcp_server() -> Iterator[Finding]:
    if not is_used():
        return
    url, whose = running.mcp_url()
    asked = f"{url} ({whose})"
    try:
        status = _asked(url)
    except (OSError, ValueError, http.client.HTTPException) as problem:
        remedy = "Start the web process, or correct MCP_URL: workers get their contract there."
        yield fault("MCP server", f"{asked} does not answer: {problem}", remedy)
        return
    if status in _ANSWERS:
        yield ok("MCP server", f"{asked} answers, and asks for a token")
    elif status == http.client.MISDIRECTED_REQUEST:
        host = urlsplit(url).hostname
        yield fault("MCP server", f"{asked} refuses its host", f"Add {host} to ALLOWED_HOSTS.")
    else:
        said = f"{asked} answers {status}: that is not our MCP server"
        yield fault("MCP server", said, "Correct MCP_URL.")


def _asked(url: str) -> int:
    """The status of a request without a token."""
    where = urlsplit(url)
    if where.scheme not in ("http", "https") or not where.hostname:
        raise ValueError("it is not an http:// or https:// address")
    connection: http.client.HTTPConnection
    if where.scheme == "https":
        secure = ssl.create_default_context()
        connection = http.client.HTTPSConnection(
            where.hostname, where.port, timeout=_PATIENCE, context=secure
        )
    else:
        connection = http.client.HTTPConnection(where.hostname, where.port, timeout=_PATIENCE)
    try:
        accepted = {"Content-Type": "application/json", "Accept": "application/json"}
        connection.request("POST", where.path or "/", body=b"{}", headers=accepted)
        return connection.getresponse().status
    finally:
        connection.close()


def _budgets() -> Iterator[Finding]:
    if not is_used():
        return
    limits = {
        "MISSION_DAILY_USD_PER_IDENTITY": settings.MISSION_DAILY_USD_PER_IDENTITY,
        "MISSION_DAILY_USD_PER_COMMAND": settings.MISSION_DAILY_USD_PER_COMMAND,
    }
    smallest = min(limits.values())
    stopped = [name for name, usd in limits.items() if usd <= 0]
    dear = [name for name, usd in selectors.claude_budgets() if usd > smallest]
    if stopped:
        yield fault("budgets", f"{', '.join(stopped)} lets no mission start", "Set it above 0.")
    elif dear:
        said = f"one run of {', '.join(dear)} may cost more than a day's budget ({smallest:g} USD)"
        yield warning("budgets", said, "Sign a smaller max_usd, or raise the daily budgets.")
    else:
        by = "counted by CLAUDE_PRICES" if settings.CLAUDE_PRICES else "as the program counts it"
        said = ", ".join(f"{name}={usd:g}" for name, usd in limits.items())
        yield ok("budgets", f"{said}; {by}")


LOOKS: tuple[Look, ...] = (
    ("claude", _program),
    ("claude API key", _api_key),
    ("sandbox", _sandbox),
    ("MCP server", _mcp_server),
    ("budgets", _budgets),
)

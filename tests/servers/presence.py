"""Finding programs and ports, and saying what is missing."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest

_PLACES = ("/usr/sbin", "/usr/local/sbin", "/usr/lib/postgresql/*/bin")


def find_binary(name: str) -> str | None:
    """The program on PATH, where Debian keeps servers, or inside the package that brings it."""
    found = shutil.which(name) or (_bundled_claude() if name == "claude" else None)
    if found:
        return found
    for place in _PLACES:
        base = Path("/")
        for path in sorted(base.glob(f"{place.lstrip('/')}/{name}"), reverse=True):
            return str(path)
    return None


def _bundled_claude() -> str | None:
    """The real Claude Code program, as the `claude-agent-sdk` wheel of this platform brings it."""
    package = find_spec("claude_agent_sdk")
    for place in (package.submodule_search_locations or ()) if package else ():
        program = Path(place) / "_bundled" / "claude"
        if os.access(program, os.X_OK):
            return str(program)
    return None


def missing(what: str) -> NoReturn:
    """Skip the test by name; where CI=true, fail it."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is missing, and CI skips nothing")
    pytest.skip(f"{what} is missing")


def require_binaries(*names: str) -> None:
    """Skip (or fail in CI) unless all of these programs are here."""
    for name in names:
        if find_binary(name) is None:
            missing(name)


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def own_host() -> str:
    """A loopback address for this process alone, so that well-known ports are free on it."""
    number = os.getpid()
    return f"127.{1 + (number >> 16) % 250}.{(number >> 8) % 256}.{1 + number % 250}"


def may_bind(host: str, port: int) -> bool:
    """Whether we can listen there: ports below 1024 are for root on many machines."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def wait_until(true: Callable[[], object], what: str, seconds: float = 30.0) -> None:
    """Poll until something holds; TimeoutError names what did not come."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if true():
            return
        time.sleep(0.05)
    raise TimeoutError(f"waited {seconds} s for {what}")


def is_listening(host: str, port: int) -> bool:
    """Whether somebody accepts connections there."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0

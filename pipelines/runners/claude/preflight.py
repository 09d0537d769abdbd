"""What must hold before a worker starts: of its command, when that is loaded, and of this host."""

from __future__ import annotations

import os
from pathlib import Path
from shutil import which

from django.conf import settings

from guards.exceptions import BinaryNotAllowed, InvalidInput
from pipelines.runners import base
from pipelines.runners.claude import destinations, sandbox, servers, tools
from pipelines.runners.claude.broker import address, prices
from pipelines.types import CommandSpec

#: Variables that the runner sets itself, or that change what a program is before it starts.
_OURS = frozenset({"PATH", "HOME", "TMPDIR", "LANG", "SHELL", "ENV", "BASH_ENV", base.MARK})
_OURS_BEGIN = ("ANTHROPIC_", "CLAUDE", "COUNTERSIGN_", "DISABLE_", "MCP_", "LD_", "BUN_", "NODE_")


def check_command(spec: CommandSpec) -> None:
    """Refuse a command that no worker could carry out as it stands; InvalidInput with the field."""
    for index, name in enumerate(spec.environment):
        if name in _OURS or name.startswith(_OURS_BEGIN):
            raise InvalidInput(
                f"{name} belongs to the worker's own surroundings", field=f"env_vars[{index}]"
            )
    tools.check(spec.tools, spec.mcp_servers)
    destinations.allowed(servers.urls(servers.configuration(spec)))
    address.of_api()
    prices.declared()


def check_host(spec: CommandSpec) -> None:
    """Refuse to start a worker that could not run here as it must: nothing has cost anything yet.

    BinaryNotAllowed without the program, SandboxMissing without walls, each with what to do.
    """
    find_program()
    is_confined(spec)


def is_confined(spec: CommandSpec) -> bool:
    """Whether the worker runs in a sandbox; SandboxMissing where it must and cannot.

    Without a working sandbox only a worker that has no tools but our own starts.
    """
    if not sandbox.is_wanted():
        return False
    if tools.need_walls(spec.tools, spec.mcp_servers):
        sandbox.require()
        return True
    return not sandbox.missing()


def find_program() -> Path:
    """The real `claude` program; BinaryNotAllowed when there is none that can run on its own."""
    found = which(settings.CLAUDE_BINARY)
    if found is None:
        raise BinaryNotAllowed(
            f"CLAUDE_BINARY names no program: {settings.CLAUDE_BINARY!r}. Install Claude Code, or "
            "set it to the program's full path",
            field="CLAUDE_BINARY",
        )
    real = Path(os.path.realpath(found))
    try:
        with real.open("rb") as file:
            begins = file.read(2)
    except OSError as error:
        raise BinaryNotAllowed(f"{real}: {error.strerror}", field="CLAUDE_BINARY") from error
    if begins == b"#!":
        raise BinaryNotAllowed(
            f"{real} is a script: install the native program of Claude Code", field="CLAUDE_BINARY"
        )
    return real

"""The MCP servers of a worker: always our own, others only where the operator's file names them.

The configuration that is written for the program holds no secret: `${NAME}` in it is filled by the
program from its environment, and of that only what the command declares is there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.conf import settings

from guards.exceptions import InvalidInput
from pipelines.runners.claude.tools import OURS
from pipelines.types import CommandSpec

#: The variable that holds the one-mission token.
TOKEN = "COUNTERSIGN_TOKEN"  # noqa: S105 - its name

_FIELD = "mcp_servers"


def configuration(spec: CommandSpec) -> dict[str, dict[str, Any]]:
    """The servers of a command by name, as the program's `mcpServers` takes them.

    InvalidInput for a name that MCP_SERVERS_FILE does not have, or a file that cannot be read.
    """
    others = [name for name in spec.mcp_servers if name != OURS]
    known = _declared() if others else {}
    unknown = [name for name in others if name not in known]
    if unknown:
        raise InvalidInput(f"MCP_SERVERS_FILE names no server {unknown[0]!r}", field=_FIELD)
    ours = {
        "type": "http",
        "url": settings.MCP_URL,
        "headers": {"Authorization": f"Bearer ${{{TOKEN}}}"},
    }
    return {OURS: ours, **{name: known[name] for name in others}}


def urls(servers: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Where those of them are that are reached by network."""
    return [str(server["url"]) for server in servers.values() if "url" in server]


def _declared() -> dict[str, dict[str, Any]]:
    """`{"mcpServers": {NAME: {"type": "http", "url": …} or {"command": …, "args": […]}}}`."""
    if not settings.MCP_SERVERS_FILE:
        return {}
    try:
        read = json.loads(Path(settings.MCP_SERVERS_FILE).read_bytes())
        found = read["mcpServers"]
        servers = {str(name): dict(server) for name, server in found.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidInput(
            f"MCP_SERVERS_FILE cannot be read as {{'mcpServers': …}}: {error}", field=_FIELD
        ) from error
    return servers

"""Tools as a command's `tools` names them, and what of it the program is told.

`Bash`, `Bash(git status)`, `mcp__SERVER` or `mcp__SERVER__TOOL`. What stands there is allowed as it
stands; of a built-in one that is there, every other use is asked for. Built-in tools that
stand nowhere do not exist for the worker. None of this is what holds: the sandbox is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from guards.exceptions import InvalidInput

#: Our own MCP server, as every worker has it.
OURS = "countersign"

#: What every worker needs, and may use.
ALWAYS = (f"mcp__{OURS}__mission_show", f"mcp__{OURS}__mission_result")

#: The tool that answers whether a call is allowed.
PERMISSION_PROMPT = f"mcp__{OURS}__permission_prompt"

_TOOL = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9_-]*)(\((?P<use>[^()\x00-\x1f]*)\))?")
_MCP = "mcp__"


def check(tools: Iterable[str], servers: Iterable[str]) -> None:
    """InvalidInput for an entry that is no tool, or one of a server that the worker has not."""
    known = {OURS, *servers}
    for index, tool in enumerate(tools):
        field = f"tools[{index}]"
        found = _TOOL.fullmatch(tool)
        if found is None:
            raise InvalidInput(f"{tool!r} is neither NAME, NAME(USE) nor mcp__SERVER", field=field)
        if tool.startswith(_MCP) and server_of(tool) not in known:
            raise InvalidInput(
                f"{tool!r} belongs to a server that mcp_servers does not name", field=field
            )


def built_in(tools: Iterable[str]) -> tuple[str, ...]:
    """The names of the program's own tools among them, each once."""
    names = (tool.partition("(")[0] for tool in tools if not tool.startswith(_MCP))
    return tuple(dict.fromkeys(names))


def server_of(tool: str) -> str:
    """The server of an MCP tool's full name."""
    return tool.removeprefix(_MCP).partition("__")[0]


def need_walls(tools: Iterable[str], servers: Iterable[str]) -> bool:
    """Whether a worker with these may do anything but talk to our own server."""
    return any(server_of(tool) != OURS for tool in tools if tool.startswith(_MCP)) or bool(
        built_in(tools) or set(servers) - {OURS}
    )

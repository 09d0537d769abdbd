"""Reading `--output-format stream-json` as it comes: the first line that says what is there, the
last one that says how it ended, and nothing else is kept.

The program may go on, or hang, after its result: the reader says when enough has come. What it
reads was written by the worker's side, and is believed for nothing but how the run ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

#: Seconds that the program has to end by itself after its result.
AFTER_RESULT = 3.0

#: Of output that cannot be read, how much of its end is kept, in bytes.
TAIL = 64 * 1024

#: A longer line is not a line.
_MAX_LINE = 16 * 1024 * 1024

_CONNECTED = "connected"


@dataclass
class Stream:
    """One run's output. `servers` and `tools` must be there when it begins, or it ends at once.

    `grace` is how many seconds the program has after its result.
    """

    servers: frozenset[str]
    tools: frozenset[str] = frozenset()
    grace: float = AFTER_RESULT
    init: Mapping[str, Any] | None = None
    result: Mapping[str, Any] | None = None
    asked: bool = False
    tail: bytes = b""
    _line: bytearray = field(default_factory=bytearray)

    def follow(self, chunk: bytes) -> float | None:
        """Take what came; how many seconds the program has left, None: as many as it needs."""
        self.tail = (self.tail + chunk)[-TAIL:]
        left: float | None = None
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            seconds = self._read(bytes(self._line + line))
            self._line.clear()
            left = seconds if seconds is not None else left
        self._line += rest[: max(0, _MAX_LINE - len(self._line))]
        return left

    def finish(self) -> None:
        """A last line may come without its end."""
        self._read(bytes(self._line))
        self._line.clear()

    def _read(self, line: bytes) -> float | None:
        if b'"assistant"' in line:
            self.asked = True
        if b'"init"' not in line and b'"result"' not in line:
            return None
        try:
            read = json.loads(line)
        except (ValueError, RecursionError):
            return None
        return self._note(read) if isinstance(read, dict) else None

    def _note(self, read: Mapping[str, Any]) -> float | None:
        if read.get("type") == "result":
            self.result = read
            return self.grace
        if read.get("type") == "system" and read.get("subtype") == "init" and self.init is None:
            self.init = read
            return 0.0 if self.absent else None
        return None

    @property
    def absent(self) -> list[str]:
        """What the run needs and the first line does not show as there."""
        if self.init is None:
            return []
        connected = {
            str(server.get("name"))
            for server in _mappings(self.init.get("mcp_servers"))
            if server.get("status") == _CONNECTED
        }
        tools = self.init.get("tools")
        present = {str(tool) for tool in tools} if isinstance(tools, list) else set()
        return [
            *(f"the MCP server {name}" for name in sorted(self.servers - connected)),
            *(f"the tool {name}" for name in sorted(self.tools - present)),
        ]


def _mappings(value: Any) -> Iterable[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []

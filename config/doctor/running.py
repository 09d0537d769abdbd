"""What the worker that runs on this host was started with, where that is not what we would be."""

from __future__ import annotations

import os
from pathlib import Path

from django.conf import settings

from guards import process, selectors


def mcp_url() -> tuple[str, str]:
    """Where its workers reach our MCP server, and who says so.

    `up` gives its worker the address that follows its own port, unless the operator has set one.
    """
    if os.environ.get("MCP_URL"):
        return settings.MCP_URL, "MCP_URL"
    given = _environment_of_the_worker().get("MCP_URL", "")
    if given:
        return given, "as the worker that runs was told"
    return settings.MCP_URL, "MCP_URL is not set: its default"


def _environment_of_the_worker() -> dict[str, str]:
    """The environment with which the newest worker of this host was started; empty without one."""
    beat = selectors.latest_heartbeat("worker")
    if beat is None:
        return {}
    pid = beat.holder.split(":")[-2:-1]
    if not pid or not pid[0].isdecimal() or process.reference_of(int(pid[0])) != beat.holder:
        return {}
    try:
        entries = Path(f"/proc/{pid[0]}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    pairs = (os.fsdecode(entry).partition("=") for entry in entries)
    return {name: value for name, _, value in pairs}

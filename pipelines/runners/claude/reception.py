"""Whether our MCP server is there for a worker, asked before the worker can reach anything.

A client that misses it would begin to ask its model all the same, and cost something for nothing.
The question is the protocol's own, with the run's token: a server that answers it is ours, and
knows this token.
"""

from __future__ import annotations

import json
import time
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from urllib.parse import urlsplit

from django.conf import settings

from pipelines.exceptions import ServerMissing

#: Seconds that our server may take, for each step and for its whole answer.
_SECONDS = 10.0
#: Bytes of an answer that are read at most.
_MOST = 1_000_000

_VERSION = "2026-07-28"
_QUESTION = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "server/discover",
    "params": {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": _VERSION,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    },
}
_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "mcp-protocol-version": _VERSION,
    "mcp-method": "server/discover",
    "Connection": "close",
}


def require(token: str) -> None:
    """ServerMissing unless MCP_URL answers whoever comes with this token."""
    parts = urlsplit(settings.MCP_URL)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_SECONDS)
    try:
        headers = {**_HEADERS, "Authorization": f"Bearer {token}"}
        connection.request("POST", parts.path or "/", json.dumps(_QUESTION), headers)
        answer = connection.getresponse()
        is_there = answer.status == 200 and "result" in json.loads(_read(answer))
        detail = f"it answers {answer.status}"
    except (OSError, HTTPException, ValueError, TypeError) as error:
        is_there, detail = False, str(error) or type(error).__name__
    finally:
        connection.close()
    if not is_there:
        raise ServerMissing(
            f"our own MCP server does not answer a worker at {settings.MCP_URL}: {detail}. Set "
            "MCP_URL to where `manage.py web` of this installation listens, with its path"
        )


def _read(answer: HTTPResponse) -> bytes:
    """Its body; OSError for one that does not come to an end, such as a stream of events."""
    until = time.monotonic() + _SECONDS
    said = b""
    while chunk := answer.read1(64 * 1024):
        said += chunk
        if len(said) > _MOST or time.monotonic() > until:
            raise OSError("its answer does not end")
    return said

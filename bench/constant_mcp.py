"""An MCP server of constant bytes: what MCP costs a client where its server costs nothing.

    python -m bench.constant_mcp PORT ANSWERS

ANSWERS is a file of JSON: a method of the protocol, and the answer that a real server gave to it.
"""

from __future__ import annotations

import json
import sys
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_VERSION = "2026-07-28"
_META = {
    "io.modelcontextprotocol/protocolVersion": _VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
}


def learn(url: str, token: str, tool: str) -> dict[str, Any]:
    """What the server behind `url` answers to the calls that a client makes."""
    calls = {
        "server/discover": {},
        "tools/list": {},
        "tools/call": {"name": tool, "arguments": {}},
    }
    return {method: _asked(url, token, method, params) for method, params in calls.items()}


def _asked(url: str, token: str, method: str, params: dict[str, Any]) -> Any:
    parts = urlsplit(url)
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Authorization": f"Bearer {token}",
        "mcp-protocol-version": _VERSION,
        "mcp-method": method,
    }
    if "name" in params:
        headers["mcp-name"] = params["name"]
    question = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": _META}}
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    try:
        connection.request("POST", parts.path, json.dumps(question), headers)
        answer = connection.getresponse()
        said = answer.read()
        assert answer.status == 200, said
        return json.loads(said)
    finally:
        connection.close()


def serve(port: int, answers: dict[str, Any]) -> None:
    """Answer until the process is ended."""

    class Constant(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            said = {**answers[asked["method"]], "id": asked["id"]} if "id" in asked else None
            body = json.dumps(said).encode() if said is not None else b""
            head = "200 OK\r\nContent-Type: application/json" if body else "202 Accepted"
            self.wfile.write(
                f"HTTP/1.1 {head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
            )

        def log_message(self, format: str, *arguments: Any) -> None:
            """Nothing to say."""

    ThreadingHTTPServer(("127.0.0.1", port), Constant).serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()))

"""An agent for tests: the SDK's own client against our MCP server, in this process.

Everything runs below `async_to_sync`, so that the server's database work happens in the test's own
thread and transaction.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import httpx2
from asgiref.sync import async_to_sync
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult

from config.asgi import application
from config.mcp import McpApplication
from guards.services import tokens
from guards.types import Asker

OPERATOR = Asker("operator", "ada")
URL = "http://localhost/mcp"

#: A call that any token may make, as one body.
WHOAMI: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "whoami", "arguments": {}},
}
JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


@dataclass(frozen=True)
class Agent:
    """Somebody with a token. `mode` is the client's: `legacy` shakes hands, `auto` discovers."""

    secret: str
    mode: str = "auto"

    def tools(self) -> list[str]:
        """The names of the tools it sees."""

        async def ask(client: Client) -> list[str]:
            return [tool.name for tool in (await client.list_tools()).tools]

        return self.during(ask)

    def call(self, tool: str, **arguments: Any) -> CallToolResult:
        """One call, whatever it comes to."""
        return self.during(lambda client: client.call_tool(tool, arguments))

    def answer(self, tool: str, **arguments: Any) -> Any:
        """The document of a call that was allowed; its text says the same."""
        made = self.call(tool, **arguments)
        assert not made.is_error, made.structured_content
        assert json.loads(made.content[0].text) == made.structured_content
        return made.structured_content

    def refusal(self, tool: str, **arguments: Any) -> Any:
        """The error shape of a call that was refused."""
        made = self.call(tool, **arguments)
        assert made.is_error, made.structured_content
        assert json.loads(made.content[0].text) == made.structured_content
        assert set(made.structured_content) == {"code", "message", "field", "rule"}
        return made.structured_content

    def during(self, work: Callable[[Client], Awaitable[Any]]) -> Any:
        """What this work with an open client comes to."""

        async def run() -> Any:
            async with self.open() as client:
                return await work(client)

        return async_to_sync(run)()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Client]:
        """A session over HTTP with a server of its own."""
        headers = {"authorization": f"Bearer {self.secret}"}
        transport = httpx2.ASGITransport(app=McpApplication(nullcontext))
        async with (
            httpx2.AsyncClient(transport=transport, headers=headers) as http,
            Client(streamable_http_client(URL, http_client=http), mode=self.mode) as client,
        ):
            yield client


def agent(*scopes: str, identity: Any = None, mode: str = "auto", **belongs: Any) -> Agent:
    """Somebody with a new token of these scopes."""
    wanted = scopes or ("messages:read",)
    _, secret = tokens.mint(label="agent", scopes=wanted, identity=identity, by=OPERATOR, **belongs)
    return Agent(secret, mode)


def send(
    body: Any = None, *, method: str = "POST", secret: str = "", **headers: str
) -> httpx2.Response:
    """One request to the whole house at `/mcp`; a body that is no bytes is sent as JSON."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if secret:
        given["authorization"] = f"Bearer {secret}"
    content = body if isinstance(body, bytes) else json.dumps(WHOAMI if body is None else body)

    async def run() -> httpx2.Response:
        server = McpApplication(nullcontext)

        async def house(scope: Any, receive: Any, send: Any) -> None:
            await (server if scope["path"] == "/mcp" else application)(scope, receive, send)

        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=house)) as http:
            return await http.request(method, URL, content=content, headers={**JSON, **given})

    return async_to_sync(run)()

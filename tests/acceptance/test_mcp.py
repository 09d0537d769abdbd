"""The MCP server as it runs, with the SDK's client: daphne over HTTP, `manage.py mcp` on stdio."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from contextlib import closing
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from tests.servers import Installation
from tests.servers.processes import ROOT

pytestmark = pytest.mark.acceptance

_MINT = """
from guards.services import contacts, identities, tokens
from guards.types import Asker, Rwx

by = Asker("operator", "test")
agent = identities.create_identity(handle="agent", email="agent@house.example", by=by)
contacts.add_contact(address="ada@example.org", grants={agent: Rwx.parse("r--")}, by=by)
answer = [
    tokens.mint(label=name, scopes=scopes, identity=agent, by=by)[1]
    for name, scopes in (("full", ["contacts:read", "messages:read"]), ("mail", ["messages:read"]))
]
"""
_BOOK = {"address": "ada@example.org", "rights": [{"identity": "agent", "rwx": "r--"}]}
_MAIL = ["check_trust", "download_attachment", "list_messages", "read_message", "show_mime"]


def revoke(installation: Installation, label: str) -> None:
    """As the operator's click leaves it, without another Python to start."""
    place = installation.directory / "countersign.sqlite3"
    with closing(sqlite3.connect(place)) as database, database:
        (changed,) = database.execute(
            "UPDATE guards_apitoken SET revoked_at = '2026-01-01 00:00:00' WHERE label = ? "
            "RETURNING 1",
            (label,),
        ).fetchone()
    assert changed == 1


async def names(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools()).tools]


async def book(client: Client) -> list[dict[str, Any]]:
    made = await client.call_tool("list_contacts", {})
    assert not made.is_error, made.structured_content
    return [{key: one[key] for key in _BOOK} for one in made.structured_content["items"]]


async def rule(client: Client, tool: str, **arguments: Any) -> str | None:
    made = await client.call_tool(tool, arguments)
    assert made.is_error
    return made.structured_content["rule"]


async def over_http(installation: Installation, url: str, full: str, mail: str) -> None:
    """Two clients at once: each sees its own tools; one loses its token in the middle."""

    def session(secret: str, mode: str) -> tuple[httpx2.AsyncClient, Client]:
        http = httpx2.AsyncClient(headers={"authorization": f"Bearer {secret}"})
        return http, Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode)

    http_full, of_full = session(full, "legacy")
    http_mail, of_mail = session(mail, "auto")
    async with http_full, http_mail, of_full as a, of_mail as b:
        assert await names(a) == sorted([*_MAIL, "list_contacts", "whoami"])
        assert await names(b) == sorted([*_MAIL, "whoami"])
        many = await asyncio.gather(*(client.call_tool("whoami", {}) for client in [a, b] * 10))
        assert [one.structured_content["label"] for one in many] == ["full", "mail"] * 10
        assert await book(a) == [_BOOK]
        assert await rule(b, "list_contacts") == "scope-missing"
        revoke(installation, "mail")
        with pytest.raises(MCPError):
            await b.call_tool("whoami", {})
        assert await book(a) == [_BOOK]
        refused = await http_mail.post(f"{url}/mcp", json={})
        assert (refused.status_code, refused.json()["rule"]) == (401, "token-revoked")
        foreign = await http_full.post(f"{url}/mcp", json={}, headers={"host": "evil.test"})
        assert (foreign.status_code, foreign.json()["rule"]) == (421, "foreign-host")


async def over_stdio(installation: Installation, secret: str) -> None:
    """The same server for a client that starts it; its token, too, is looked at for each call."""
    server = StdioServerParameters(
        command=sys.executable,
        args=[str(ROOT / "manage.py"), "mcp"],
        env={**installation.env, "COUNTERSIGN_TOKEN": secret},
        cwd=ROOT,
    )
    async with Client(stdio_client(server)) as client:
        assert "list_contacts" in await names(client)
        assert await book(client) == [_BOOK]
        assert await rule(client, "mission_show") == "scope-missing"
        made = await client.call_tool("list_messages", {"limit": "500"})
        assert (made.is_error, made.structured_content["field"]) == (True, "limit")
        revoke(installation, "full")
        assert await rule(client, "list_contacts") == "token-revoked"
        with pytest.raises(MCPError):
            await client.list_tools(cache_mode="bypass")


async def test_real_clients_over_http_and_stdio(installation: Installation) -> None:
    full, mail = installation.inside(_MINT)
    daphne, url = installation.web()
    await over_http(installation, url, full, mail)
    await over_stdio(installation, full)
    assert daphne.stop() == 0
    assert "Traceback" not in daphne.output()
    assert "never retrieved" not in daphne.output()
    assert "was destroyed" not in daphne.output()

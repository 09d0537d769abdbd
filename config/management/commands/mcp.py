"""`manage.py mcp`: the MCP server on standard input and output, for a client on this machine."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from channels.db import database_sync_to_async
from django.core.management.base import BaseCommand, CommandError
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server

from config.mcp import build_server
from guards.exceptions import CountersignError
from guards.fronts.commands import CHECKED_AT_START, Exit, prerequisite_missing, sentence
from guards.models import ApiToken
from guards.services import tokens

#: Where the token is taken from: never an argument, which every process of the machine can read.
TOKEN_VARIABLE = "COUNTERSIGN_TOKEN"  # noqa: S105 (a variable's name)


class Command(BaseCommand):
    """Serve until standard input ends. Exit 3 without a token, 1 with one that does not count."""

    help = (
        "Serve MCP on standard input and output. The token comes from the environment: "
        f"{TOKEN_VARIABLE}=cs_… manage.py mcp"
    )
    requires_system_checks = CHECKED_AT_START

    def handle(self, *args: Any, **options: Any) -> None:
        """Refuse a token that does not count at once, and at each call from then on."""
        secret = os.environ.pop(TOKEN_VARIABLE, "").strip()
        if not secret:
            raise prerequisite_missing(f"put the token into {TOKEN_VARIABLE}")
        try:
            tokens.authenticate(secret)
        except CountersignError as refusal:
            raise CommandError(sentence(refusal), returncode=Exit.FAILED) from refusal
        asyncio.run(_serve(secret))


async def _serve(secret: str) -> None:
    async def caller(_: ServerRequestContext[Any]) -> ApiToken:
        return await database_sync_to_async(tokens.authenticate)(secret)

    server = build_server(caller)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())

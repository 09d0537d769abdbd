"""Tools of guards over MCP: who the caller is, and the address book."""

from __future__ import annotations

from guards import answers
from guards.fronts.mcp import Tool, in_database, register_tool


def register() -> None:
    """Offer them. Called once, when this module is loaded."""
    register_tool(
        Tool(
            "whoami",
            None,
            "Whom your token belongs to, what it may do and until when.",
            in_database(answers.whoami),
        )
    )
    register_tool(
        Tool(
            "list_contacts",
            "contacts:read",
            "The address book: names, addresses, pinned keys, and what each contact may ask of "
            "your identity (rwx).",
            in_database(answers.list_contacts),
        )
    )


register()

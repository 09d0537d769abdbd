"""What the database refuses on approvals' tables, whoever writes: frozen intents, one-way moves."""

from __future__ import annotations

from approvals.protections import acts, authority
from guards import registry


def register() -> None:
    """Register them all. Called once, in `ready()`."""
    acts.register()
    authority.register()
    registry.register_scopes(
        "approvals",
        {
            "approvals:answer": "Open drafts for review and answer them; a person's token only.",
            "approvals:read": "Read what waits, what was approved and what left.",
        },
        of_people=["approvals:answer"],
    )

"""Tasks of teams: adapters from the queue to services."""

from __future__ import annotations

from guards.queue import task
from teams.services import checkpoints


@task
def sign_head() -> None:
    """Sign the head of the event log where it waits unsigned."""
    checkpoints.sign_if_due()

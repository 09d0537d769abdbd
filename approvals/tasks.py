"""Tasks of approvals: adapters from the queue to services. A task only says: look now."""

from __future__ import annotations

from approvals.services import approvals, effects
from guards.queue import task


@task
def dispatch_effect(effect_id: str) -> None:
    """Make the one contact of an intent, if nobody has."""
    effects.dispatch(effect_id=effect_id)


@task
def sweep() -> None:
    """Expire what is over, settle what lost workers left, and wake intents that nobody took."""
    approvals.expire_due()
    effects.reconcile()
    effects.enqueue_due()

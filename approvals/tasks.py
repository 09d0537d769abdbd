"""Tasks of approvals: adapters from the queue to services. A task only says: look now."""

from __future__ import annotations

from approvals.services import approvals, effects, jobs, recovery
from guards.queue import task
from guards.services import idempotency


@task
def dispatch_effect(effect_id: str) -> None:
    """Make the one contact of an intent, if nobody has."""
    effects.dispatch(effect_id=effect_id)


@task
def look_again(job_id: str) -> None:
    """Make the one attempt of a look, if nobody has."""
    recovery.run(job_id=job_id)


@task
def sweep() -> None:
    """Expire what is over, settle what lost workers left, and wake what nobody took."""
    approvals.expire_due()
    effects.reconcile()
    jobs.settle_lost()
    recovery.settle_lost()
    effects.enqueue_due()
    recovery.enqueue_due()
    idempotency.forget_old()

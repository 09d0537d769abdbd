"""The replay ledger: one signed text starts one pipeline, ever (W6)."""

from __future__ import annotations

from guards.models import ReplayEntry
from guards.services.units import unit_of_work
from guards.types import Subject


def claim(*, key: str, subject: Subject) -> bool:
    """Take a replay key for a pipeline; False when it was taken before.

    Call it in the transaction that creates the pipeline: a rollback gives the key back. A second
    claimant on PostgreSQL waits until the first commits or rolls back.
    """
    with unit_of_work():
        _, taken = ReplayEntry.objects.get_or_create(
            key=key, defaults={"subject_type": subject.type, "subject_id": subject.id}
        )
    return taken

"""`reconcile`: settle what lost workers left behind, and tell the log what it was never told."""

from __future__ import annotations

from typing import Any

from approvals.services import approvals, effects
from guards.fronts.commands import Exit, JsonCommand
from teams import reconciliation


class Command(JsonCommand):
    """Does once what the worker's sweep does each minute, and raises missing events."""

    help = (
        "Settle acts of workers that are provably gone, expire approvals past their time, and "
        "raise events for records that have none. Example: manage.py reconcile --json"
    )

    def perform(self, **options: Any) -> int:
        """Run the passes and say what they found."""
        expired, settled = approvals.expire_due(), effects.reconcile()
        raised = reconciliation.raise_missing_events()
        self.emit(
            {"approvals_expired": expired, "effects_settled": settled, "events_raised": raised},
            f"{expired} approvals expired, {settled} acts settled, {raised} events raised.",
        )
        return Exit.AS_ASKED

"""`recover_pipelines`: call interrupted what a crash left, and tell its requesters."""

from __future__ import annotations

from typing import Any

from guards.fronts.commands import Exit, JsonCommand
from pipelines.services import recovery


class Command(JsonCommand):
    """Interrupt the pipelines whose worker is dead or whose lease is past. Nothing runs again."""

    help = "Mark pipelines of dead workers as interrupted and send the fixed text."

    def perform(self, **options: Any) -> int:
        """Recover, and say how many were interrupted."""
        count = recovery.recover()
        self.emit({"interrupted": count}, f"{count} interrupted")
        return Exit.AS_ASKED

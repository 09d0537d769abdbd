"""`sweep_files`: remove the directories of pipelines whose time is over, and orphans."""

from __future__ import annotations

from typing import Any

from guards.fronts.commands import Exit, JsonCommand
from pipelines.services import clearing


class Command(JsonCommand):
    """Remove what the retention period keeps no longer; what may still go on stays."""

    help = "Remove directories of ended pipelines and orphans. Example: manage.py sweep_files"

    def perform(self, **options: Any) -> int:
        """Sweep, and say how many directories went and how many bytes they held."""
        swept = clearing.sweep()
        self.emit(
            {"directories": swept.directories, "bytes": swept.bytes},
            f"{swept.directories} directories removed, {swept.bytes} bytes",
        )
        return Exit.AS_ASKED

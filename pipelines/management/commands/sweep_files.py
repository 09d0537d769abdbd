"""`sweep_files`: remove directories of pipelines and missions whose time is over, and orphans."""

from __future__ import annotations

from typing import Any

from guards.fronts.commands import Exit, JsonCommand
from pipelines.runners.claude import lodging
from pipelines.services import clearing


class Command(JsonCommand):
    """Remove what the retention period keeps no longer; what may still go on stays."""

    help = "Remove directories of ended pipelines and orphans. Example: manage.py sweep_files"

    def perform(self, **options: Any) -> int:
        """Sweep, and say how many directories went, and the bytes of pipelines' files."""
        swept, missions = clearing.sweep(), lodging.sweep()
        self.emit(
            {"directories": swept.directories, "bytes": swept.bytes, "missions": missions},
            f"{swept.directories} directories of pipelines removed, {swept.bytes} bytes;"
            f" {missions} of missions",
        )
        return Exit.AS_ASKED

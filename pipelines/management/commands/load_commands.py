"""`load_commands DIR`: take signed commands in from YAML and JSON files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from guards.fronts.commands import Exit, JsonCommand, wrong_use
from guards.types import Asker
from pipelines.services import commands
from pipelines.types import LoadOutcome, LoadResult


class Command(JsonCommand):
    """Load every command file of a directory; one answer a file. Exit 1 when any was not loaded."""

    help = "Load signed commands from the YAML and JSON files of a directory."

    def add_arguments(self, parser: CommandParser) -> None:
        """DIR, and --json."""
        super().add_arguments(parser)
        parser.add_argument("directory", type=Path, metavar="DIR")

    def perform(self, **options: Any) -> int:
        """Load, and say for each file what became of it."""
        directory: Path = options["directory"]
        if not directory.is_dir():
            raise wrong_use(f"{directory} is not a directory")
        outcomes = commands.load_directory(directory, by=Asker("operator", "shell"))
        for outcome in outcomes:
            self.emit(asdict(outcome), _sentence(outcome))
        loaded = all(outcome.outcome is LoadResult.LOADED for outcome in outcomes)
        return Exit.AS_ASKED if loaded else Exit.FAILED


def _sentence(outcome: LoadOutcome) -> str:
    if outcome.outcome is LoadResult.LOADED:
        return f"loaded      {outcome.name}  ({outcome.file})"
    place = f"{outcome.field}: " if outcome.field else ""
    return f"{outcome.outcome} ({outcome.cause}) {outcome.file}: {place}{outcome.detail}"

"""`pipeline VERB`: look at one pipeline, and say what would become of a message."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from guards.fronts.commands import Exit, JsonCommand
from pipelines.management import dry_running


class Command(JsonCommand):
    """One verb a sub-parser."""

    help = "Look at pipelines, and try a message without running anything."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """The verbs."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        dry = verbs.add_parser("dry-run", help=dry_running.HELP)
        super().add_arguments(dry)
        dry_running.add_arguments(dry)

    def perform(self, **options: Any) -> int:
        """Do what the verb says."""
        dry_running.perform(self, options)
        return Exit.AS_ASKED

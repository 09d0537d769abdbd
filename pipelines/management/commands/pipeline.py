"""`pipeline VERB`: list pipelines; look at one, end it or have it go on; try a message."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from guards.fronts.commands import Exit, JsonCommand
from pipelines.management import dry_running, operating


class Command(JsonCommand):
    """One verb a sub-parser."""

    help = "List, show, cancel or retry pipelines, or try a message without running anything."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """The verbs."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        listing = verbs.add_parser("list", help=operating.LISTING)
        super().add_arguments(listing)
        operating.add_list_arguments(listing)
        dry = verbs.add_parser("dry-run", help=dry_running.HELP)
        super().add_arguments(dry)
        dry_running.add_arguments(dry)
        for verb, what in operating.VERBS.items():
            parser_of_verb = verbs.add_parser(verb, help=what)
            super().add_arguments(parser_of_verb)
            operating.add_arguments(parser_of_verb)

    def perform(self, **options: Any) -> int:
        """Do what the verb says."""
        if options["verb"] == "list":
            operating.perform_list(self, options)
        elif options["verb"] in operating.VERBS:
            operating.perform(self, options["verb"], options)
        else:
            dry_running.perform(self, options)
        return Exit.AS_ASKED

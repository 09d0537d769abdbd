"""`load_rules FILE`: take planning rules in from one YAML file, all of them or none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from guards.fronts.commands import Exit, JsonCommand, wrong_use
from guards.types import Asker
from pipelines.models import Rule
from pipelines.services import rule_files, rules


class Command(JsonCommand):
    """One answer a rule; what is still missing for it to start anything is said with it."""

    help = "Load planning rules from a YAML file, all of them or none."

    def add_arguments(self, parser: CommandParser) -> None:
        """FILE, and whether rules that it does not name go."""
        super().add_arguments(parser)
        parser.add_argument("file", type=Path, metavar="FILE")
        parser.add_argument(
            "--replace", action="store_true", help="remove rules that the file does not name"
        )

    def perform(self, **options: Any) -> int:
        """Load."""
        file: Path = options["file"]
        try:
            names = rule_files.load(file, by=Asker("operator", "shell"), replace=options["replace"])
        except OSError as error:
            raise wrong_use(f"{file} cannot be read: {error.strerror}") from error
        for rule in Rule.objects.filter(name__in=names):
            unmet = rules.unmet_calls(calls=rule.calls)
            said = f"loaded      {rule.name}" + "".join(f"\n            but {why}" for why in unmet)
            self.emit({"name": rule.name, "position": rule.position, "unmet": unmet}, said)
        return Exit.AS_ASKED

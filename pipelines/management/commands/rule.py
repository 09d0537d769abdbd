"""`rule list|show|try|remove|export`: planning rules without a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from guards.exceptions import NotFound
from guards.fronts.commands import Exit, JsonCommand
from guards.types import Asker
from pipelines import selectors, writing
from pipelines.management import dry_running
from pipelines.models import Rule
from pipelines.services import rule_files, rules


class Command(JsonCommand):
    """One verb a sub-parser. `load_rules FILE` writes them."""

    help = "List, show, try, remove and export planning rules."

    def add_arguments(self, parser: CommandParser) -> None:
        """The verbs."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        for verb, help in (
            ("list", "every rule in the order in which they are asked"),
            ("show", "one rule, and its hits of the last days"),
            ("remove", "take a rule away"),
            ("export", "all rules as a file for load_rules"),
            ("try", "what the rules make of a message, whatever its decision is now"),
        ):
            own = verbs.add_parser(verb, help=help)
            super().add_arguments(own)
            if verb in ("show", "remove"):
                own.add_argument("name", metavar="NAME")
            if verb == "export":
                own.add_argument("--output", type=Path, metavar="FILE", help="not standard output")
            if verb == "try":
                dry_running.add_arguments(own)

    def perform(self, **options: Any) -> int:
        """Do what the verb says."""
        match options["verb"]:
            case "list":
                self._list()
            case "show":
                self._show(options["name"])
            case "remove":
                rules.remove_rule(name=options["name"], by=Asker("operator", "shell"))
                self.emit({"name": options["name"], "removed": True}, f"removed {options['name']}")
            case "export":
                self._export(options["output"])
            case _:
                dry_running.perform(self, options, admitted=True)
        return Exit.AS_ASKED

    def _list(self) -> None:
        for rule in Rule.objects.select_related("identity"):
            place = f"{' ' if rule.is_active else '-'} {rule.position:>6}"
            self.emit(
                {**rule_files.as_document(rule), "active": rule.is_active, "hits": rule.hits},
                f"{place}  {rule.name:<30} {rule.hits:>6} hits  {rule.match[:60]}",
            )

    def _show(self, name: str) -> None:
        rule = Rule.objects.select_related("identity").filter(name=name).first()
        if rule is None:
            raise NotFound(f"there is no rule {name}", field="name")
        days = {str(day): hits for day, hits in selectors.hits_by_day(rule) if hits}
        unmet = rules.unmet_calls(calls=rule.calls)
        document = {
            **rule_files.as_document(rule),
            "active": rule.is_active,
            "hits": rule.hits,
            "hits_by_day": days,
            "unmet": unmet,
        }
        self.emit(document, writing.as_yaml(document).rstrip())

    def _export(self, output: Path | None) -> None:
        text = rule_files.export()
        if output is not None:
            output.write_text(text, encoding="utf-8")
        document = {"rules": text, "file": str(output) if output else None}
        self.emit(document, text.rstrip(), exact=True)

"""The base of management commands: one answer, for people or as JSON, and an exit code.

Exit codes: 0 it came out as asked, 1 it did not, 2 the command was used wrongly, 3 something that
the installation needs is missing. Standard output holds the answer and nothing else; sentences
about faults, progress and logs go to standard error.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from django.core.checks import Tags
from django.core.management.base import BaseCommand, CommandError, CommandParser

from guards.exceptions import CountersignError
from guards.types import HOUSE_CHECKS

#: What a program looks at as it starts. Addresses and pages, which take longest to load, are for
#: `web`, `check` and `prepare`.
CHECKED_AT_START = (
    HOUSE_CHECKS,
    *(Tags.caches, Tags.compatibility, Tags.database, Tags.models, Tags.security),
)

#: What would steer a terminal or turn a line around, wherever it came from: mail, a model, a file.
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class Exit(IntEnum):
    """What an exit code says."""

    AS_ASKED = 0
    FAILED = 1
    USAGE = 2
    PREREQUISITE = 3


class JsonCommand(BaseCommand):
    """A command that answers with documents: `perform` emits them and returns its exit code."""

    requires_system_checks: list[str] | tuple[str, ...] = CHECKED_AT_START
    as_json = False

    def add_arguments(self, parser: CommandParser) -> None:
        """`--json`; a command with options of its own calls this one too."""
        parser.add_argument(
            "--json", action="store_true", help="print JSON on standard output, and nothing else"
        )

    @abstractmethod
    def perform(self, **options: Any) -> int:
        """Do the work; `emit` what is to be said. A refusal may simply rise."""

    def handle(self, *args: object, **options: Any) -> None:
        """Run `perform` and turn its outcome into an exit code."""
        self.as_json = bool(options.get("json"))
        try:
            code = self.perform(**options)
        except CountersignError as refusal:
            raise CommandError(visible(sentence(refusal)), returncode=Exit.FAILED) from refusal
        if code:
            raise SystemExit(int(code))

    def emit(
        self, document: Mapping[str, object], text: str | None = None, *, exact: bool = False
    ) -> None:
        """Print one answer: its JSON on one line, or (without `--json`) `text` for people.

        What would steer a terminal is printed by its number, which JSON reads back as it was;
        `exact` prints a text that is a file to keep as it is.
        """
        if self.as_json or text is None:
            written = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
            self.stdout.write(visible(written))
        else:
            self.stdout.write(text if exact else visible(text))

    def remark(self, text: str) -> None:
        """Say something that is no part of the answer."""
        self.stderr.write(text)


def visible(text: str) -> str:
    """The text with `\\u009b` for each character that a terminal would obey."""
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def wrong_use(message: str) -> CommandError:
    """To raise where an argument makes no sense: exit 2."""
    return CommandError(message, returncode=Exit.USAGE)


def prerequisite_missing(message: str) -> CommandError:
    """To raise where the machine lacks something, which the message names: exit 3."""
    return CommandError(message, returncode=Exit.PREREQUISITE)


def sentence(refusal: CountersignError) -> str:
    """A refusal on one line: what was refused, by which rule, at which field."""
    marks = [f"rule {refusal.rule}" if refusal.rule else "", refusal.field or ""]
    named = ", ".join(mark for mark in marks if mark)
    return f"{refusal.detail} ({named})" if named else refusal.detail

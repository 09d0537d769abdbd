"""The base of management commands: one answer, for people or as JSON, and an exit code.

Exit codes: 0 it came out as asked, 1 it did not, 2 the command was used wrongly, 3 something that
the installation needs is missing. Standard output holds the answer and nothing else; sentences
about faults, progress and logs go to standard error.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from guards.exceptions import CountersignError


class Exit(IntEnum):
    """What an exit code says."""

    AS_ASKED = 0
    FAILED = 1
    USAGE = 2
    PREREQUISITE = 3


class JsonCommand(BaseCommand):
    """A command that answers with documents: `perform` emits them and returns its exit code."""

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
            raise CommandError(sentence(refusal), returncode=Exit.FAILED) from refusal
        if code:
            raise SystemExit(int(code))

    def emit(self, document: Mapping[str, object], text: str | None = None) -> None:
        """Print one answer: its JSON on one line, or (without `--json`) `text` for people."""
        if self.as_json or text is None:
            self.stdout.write(json.dumps(document, ensure_ascii=False, separators=(",", ":")))
        else:
            self.stdout.write(text)

    def remark(self, text: str) -> None:
        """Say something that is no part of the answer."""
        self.stderr.write(text)


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

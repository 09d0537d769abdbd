"""`verify_log`: prove that nothing in the event log was changed, reordered, removed or cut."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import CommandParser

from guards.fronts.commands import Exit, JsonCommand, wrong_use
from teams import selectors
from teams.services import verification
from teams.types import LogHead, LogReport

_EXAMPLES = """
Examples:
  manage.py verify_log
  manage.py verify_log --json
  manage.py verify_log --head 41:9f2c…   the head that a report or a backup kept: shows a cut tail
                                         even where the checkpoints were cut as well
Exit: 0 the log holds, 1 it does not, 2 wrong use.
"""


class Command(JsonCommand):
    """Walks the hash chain against the head row and every checkpoint signed on the way."""

    help = "Prove that the event log is whole, or name the first row that shows otherwise."

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Show the examples under the options."""
        from argparse import RawDescriptionHelpFormatter

        parser = super().create_parser(prog_name, subcommand, epilog=_EXAMPLES, **kwargs)
        parser.formatter_class = RawDescriptionHelpFormatter
        return parser

    def add_arguments(self, parser: CommandParser) -> None:
        """`--head` beside `--json`."""
        super().add_arguments(parser)
        parser.add_argument("--head", metavar="SEQ:HASH", help="a head that was kept elsewhere")

    def perform(self, **options: Any) -> int:
        """Verify and say so."""
        expected = _head(options["head"]) if options["head"] else None
        report = verification.verify(expected=expected, progress=self._progress())
        self.emit(_document(report), _sentence(report))
        if not report.ok and self.as_json:
            self.remark(report.reason)
        return Exit.AS_ASKED if report.ok else Exit.FAILED

    def _progress(self) -> verification.Progress | None:
        if self.as_json or not sys.stderr.isatty():
            return None
        total = max(1, selectors.head().seq)

        def show(seq: int) -> None:
            self.stderr.write(f"\r{seq:>12,} of {total:,} events", ending="")

        return show


def _head(text: str) -> LogHead:
    seq, _, digest = text.partition(":")
    if not seq.isdecimal() or len(digest) != 64:
        raise wrong_use(f"--head {text!r} is not SEQ:HASH with a hash of 64 hex digits")
    return LogHead(int(seq), digest.lower())


def _document(report: LogReport) -> dict[str, object]:
    return {
        "ok": report.ok,
        "events": report.events,
        "head": {"seq": report.head.seq, "hash": report.head.hash},
        "first_bad": report.first_bad,
    }


def _sentence(report: LogReport) -> str:
    if report.ok:
        return f"The log holds: {report.events:,} events, head {report.head.seq}:{report.head.hash}"
    where = f" First bad row: {report.first_bad}." if report.first_bad is not None else ""
    return f"The log does NOT hold: {report.reason}.{where}"

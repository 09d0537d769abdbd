"""`explain`: what the system makes of a message, without storing it."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from guards.exceptions import InvalidInput
from guards.fronts import judging
from guards.fronts.commands import sentence, wrong_use


class Command(BaseCommand):
    """Prints one JSON object a file. Exit 0 for any bytes, 2 for usage, files and keys."""

    help = (
        "Say what the system makes of messages (files, or folders of files) without storing them."
        " With --contact or --pin only those apply, otherwise the database."
    )
    requires_system_checks: list[str] = []
    requires_migrations_checks = False

    def add_arguments(self, parser: CommandParser) -> None:
        """The options of the issue's usage line."""
        parser.add_argument("--json", action="store_true", help="JSON (always so)")
        judging.add_arguments(parser)

    def handle(self, *args: object, **options: Any) -> None:
        """Explain every file; nothing is printed before every path is known to be readable."""
        from mail import explaining
        from mail.types import Provider

        now = judging.moment(options["now"])
        paths = judging.named_paths(options)
        if not paths:
            raise wrong_use("name at least one PATH: a message, or a folder of messages")
        files = judging.readable_files(paths)
        try:
            setting = explaining.build_setting(
                contacts=options["contact"],
                pins=options["pin"],
                identity=options["identity"],
                provider=Provider(options["provider"]),
                loopback=options["loopback"],
                now=now,
            )
        except InvalidInput as refusal:
            raise wrong_use(sentence(refusal)) from refusal
        for file in files:
            answer = explaining.explain(judging.read(file), file=file, setting=setting)
            self.stdout.write(json.dumps(answer, separators=(",", ":")))

"""`manage.py embedded_mail`: the mail server of the demo as a process of its own."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser


class Command(BaseCommand):
    """Serve IMAP and SMTP on loopback for the mailboxes listed in DIRECTORY/mailboxes.json.

    Prints its four ports as one line of JSON, and writes them to DIRECTORY/ports.json.
    """

    help = "Serve demo mail. Example: manage.py embedded_mail --directory var/demo/mail"
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Name the directory and, where they must be fixed, the ports."""
        parser.add_argument("--directory", type=Path, required=True)
        for name in ("imap", "imaps", "smtp", "smtps"):
            parser.add_argument(f"--{name}-port", type=int, default=0, help="0: a free one")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until SIGTERM or SIGINT."""
        try:
            from config import embedded_mail
        except ImportError as missing:
            raise CommandError(
                f"The embedded mail server needs {missing.name}: "
                "install requirements/demo.txt (make setup does)."
            ) from None
        # Its libraries tell every line of every session.
        warnings.filterwarnings("ignore", message="Requiring AUTH while not requiring TLS")
        for name in ("mail.log", "pymap"):
            logging.getLogger(name).setLevel(logging.ERROR)
        directory: Path = options["directory"]
        server = embedded_mail.EmbeddedMail(
            directory=directory,
            mailboxes=embedded_mail.read_mailboxes(directory),
            ports=embedded_mail.Ports(
                options["imap_port"],
                options["imaps_port"],
                options["smtp_port"],
                options["smtps_port"],
            ),
        )
        try:
            asyncio.run(self._serve(server, directory, verbose=options["verbosity"] > 0))
        except OSError as error:
            raise CommandError(f"The embedded mail server cannot listen: {error}") from None

    async def _serve(self, server: Any, directory: Path, *, verbose: bool) -> None:
        from config import embedded_mail

        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        async with server as ports:
            embedded_mail.write_ports(directory, ports)
            if verbose:
                self.stdout.write(json.dumps(asdict(ports)))
                self.stdout.flush()
            await stop.wait()

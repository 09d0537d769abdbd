"""`watch_mail`: keeps one IDLE connection per account until it is told to stop."""

from __future__ import annotations

import signal
from argparse import ArgumentParser
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand

from guards.fronts.commands import CHECKED_AT_START
from mail.gateways.base import Waker
from mail.management.commands.poll_mail import account_by_name
from mail.services import watching


class Command(BaseCommand):
    """Watches all accounts, or one. Ends at once on SIGTERM or SIGINT."""

    help = "Watch mailboxes by IMAP IDLE; accounts that are added or changed are taken up."
    requires_system_checks = CHECKED_AT_START

    def add_arguments(self, parser: ArgumentParser) -> None:
        """`--account NAME` watches that one only."""
        parser.add_argument("--account", help="name of the one account to watch")

    def handle(self, *args: Any, **options: Any) -> None:
        """Block until a signal comes."""
        only = account_by_name(options["account"]).pk if options["account"] else None
        stop = Waker()

        def end(signum: int, frame: FrameType | None) -> None:
            stop.wake()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, end)
        watching.watch(stop=stop, only=only)

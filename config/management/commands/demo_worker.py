"""`manage.py demo_worker --die …`: the demo's worker that is killed in the middle of a send."""

from __future__ import annotations

import os
import signal
from typing import Any

from django.core.management.base import CommandParser

from approvals.signals import contact_claimed, contact_returned
from config.management.commands import worker

_MOMENTS = {"after-mark": contact_claimed, "after-data": contact_returned}


def _die(sender: object, **announced: object) -> None:
    """SIGKILL to this worker and all its processes, as a power cut would end them."""
    os.killpg(os.getpgrp(), signal.SIGKILL)


class Command(worker.Command):
    """For the demo only: a worker whose first send is its last act. It wants its own session."""

    help = "The demo's worker that dies. Example: manage.py demo_worker --die after-mark"

    def add_arguments(self, parser: CommandParser) -> None:
        """When to die."""
        parser.add_argument("--die", choices=sorted(_MOMENTS), required=True)

    def handle(self, *args: Any, **options: Any) -> None:
        """Listen for the moment, then work."""
        _MOMENTS[options["die"]].connect(_die, weak=False)
        super().handle(*args, **options)

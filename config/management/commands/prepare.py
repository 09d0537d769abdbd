"""`manage.py prepare`: what has to be there before any process starts, also after an upgrade."""

from __future__ import annotations

from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand

from approvals.services import artifacts
from teams.services import checkpoints


class Command(BaseCommand):
    """Bring the database to this version and make the installation's keys where there are none.

    `up` does the same by itself. A key that exists is never touched, and one that does not lie in
    a file is the operator's own.
    """

    help = "Migrate the database and make missing keys. Example: manage.py prepare"
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrate, check, make keys, and say which."""
        call_command("migrate", verbosity=0, interactive=False)
        call_command("check")
        for name, made in (
            ("artifact", artifacts.ensure_key()),
            ("installation", checkpoints.ensure_key()),
        ):
            if made is not None:
                self.stdout.write(f"wrote the {name} key: {made}")

"""`manage.py demo --once`: the whole story in a temporary installation, and what came out of it."""

from __future__ import annotations

import json
import os
import secrets
import tempfile
import time
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from config.demo import prerequisites
from guards.fronts.commands import Exit, JsonCommand, prerequisite_missing, wrong_use

_SHOWN = ("trust", "decisions", "pipelines", "approvals", "events", "log_verified", "crash")


class Command(JsonCommand):
    """Tell the demo's story with real processes and an embedded mail server, headless.

    Nothing of this installation is touched: data directory, database, keys and secrets are new and
    removed afterwards. Exit codes: 0 as told, 1 otherwise (with `failures`), 2 usage, 3 something
    is missing.
    """

    help = "Tell the demo's story. Example: manage.py demo --once --json"
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """How to tell it."""
        super().add_arguments(parser)
        parser.add_argument("--once", action="store_true", help="tell the story once and end")
        parser.add_argument("--database", default="", help="URL of an empty database to use")
        crash = parser.add_mutually_exclusive_group()
        crash.add_argument(
            "--crash-after-dispatch",
            action="store_const",
            const="after-mark",
            dest="crash",
            help="kill the worker right after the mark of a send",
        )
        crash.add_argument(
            "--crash-after-data",
            action="store_const",
            const="after-data",
            dest="crash",
            help="kill the worker right after the server took the message",
        )

    def perform(self, **options: Any) -> int:
        """Make the temporary installation and play in it."""
        started = time.time()
        if not options["once"]:
            raise wrong_use("Say --once; `manage.py up --demo` is the demo that stays.")
        absent = prerequisites.missing()
        if absent:
            raise prerequisite_missing(f"The demo needs {', '.join(absent)}.")
        # Sockets of gpg-agent and of the queue want a short path.
        with tempfile.TemporaryDirectory(prefix="cs-demo-", dir="/tmp") as name:
            code, report = self._play(Path(name), options["database"], options["crash"], started)
        if report is None:
            return code or Exit.FAILED
        self.emit(report, _as_text(report))
        return code

    def _play(
        self, directory: Path, database: str, crash: str | None, started: float
    ) -> tuple[int, dict[str, Any] | None]:
        from config.demo.world import World
        from config.supervision import run_to_end

        environment = {
            **os.environ,
            "DATA_DIR": str(directory),
            "SECRETS_DIR": str(directory / "secrets"),
            "DATABASE_URL": database or f"sqlite:///{directory / 'demo.sqlite3'}",
            "SECRET_KEY": secrets.token_urlsafe(50),
            "REDIS_URL": "",
            "INSTALLATION_KEY_REF": f"file:{directory}/keys/installation.pem",
            "ARTIFACT_KEY_REF": f"file:{directory}/keys/artifact.key",
            "OWNER_HANDLE": "",
            "DJANGO_SETTINGS_MODULE": "config.settings",
            **World(directory / "demo").owner_settings(),
        }
        arguments = ["-m", "config.demo", "--started", str(started)]
        code, output = run_to_end(arguments + (["--crash", crash] if crash else []), environment)
        lines = output.decode("utf-8", "replace").strip().splitlines()
        return code, json.loads(lines[-1]) if lines else None


def _as_text(report: dict[str, Any]) -> str:
    lines = [f"{name:<13} {json.dumps(report[name])}" for name in _SHOWN]
    lines += [f"reply         {json.dumps(reply)}" for reply in report["replies"]]
    lines += [f"not as told: {failure}" for failure in report["failures"]]
    verdict = "as told" if report["ok"] else "NOT as told"
    return "\n".join([*lines, f"{verdict}, in {report['seconds']} s"])

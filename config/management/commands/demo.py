"""`manage.py demo`: a story in a temporary installation, and what came out of it."""

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
    """Tell a story of the demo, headless.

    `--once` is the whole one, with real processes and an embedded mail server; `--unknown` that of
    one exact reply whose answer gets lost. Nothing of this installation is touched: data directory,
    database, keys and secrets are new and removed afterwards. Exit codes: 0 as told, 1 otherwise,
    2 usage, 3 something is missing.
    """

    help = "Tell the demo's story. Example: manage.py demo --once --json"
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """How to tell it."""
        super().add_arguments(parser)
        story = parser.add_mutually_exclusive_group()
        story.add_argument("--once", action="store_true", help="tell the story once and end")
        story.add_argument(
            "--unknown",
            action="store_true",
            help="tell of a reply whose answer gets lost, and of a look again that finds it",
        )
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
        is_unknown, crash = options["unknown"], options["crash"]
        if is_unknown and crash:
            raise wrong_use("--unknown has no worker to kill: that is a form of --once.")
        if not is_unknown and not options["once"]:
            raise wrong_use(
                "Say --once or --unknown; `manage.py up --demo` is the demo that stays."
            )
        absent = [] if is_unknown else prerequisites.missing()
        if absent:
            raise prerequisite_missing(f"The demo needs {', '.join(absent)}.")
        told = ["--unknown"] if is_unknown else ["--crash", crash] if crash else []
        # Sockets of gpg-agent and of the queue want a short path.
        with tempfile.TemporaryDirectory(prefix="cs-demo-", dir="/tmp") as name:
            environment = _environment(Path(name), options["database"])
            if not is_unknown:
                environment |= _owner(Path(name))
            code, report = _play(["--started", str(started), *told], environment)
        if report is None:
            return code or Exit.FAILED
        self.emit(report, _lost_answer(report) if is_unknown else _as_text(report))
        return code


def _owner(directory: Path) -> dict[str, str]:
    from config.demo.world import World

    return World(directory / "demo").owner_settings()


def _environment(directory: Path, database: str) -> dict[str, str]:
    """A whole installation's settings below one directory."""
    return {
        **os.environ,
        "DATA_DIR": str(directory),
        "SECRETS_DIR": str(directory / "secrets"),
        "DATABASE_URL": database or f"sqlite:///{directory / 'demo.sqlite3'}",
        "SECRET_KEY": secrets.token_urlsafe(50),
        "REDIS_URL": "",
        "INSTALLATION_KEY_REF": f"file:{directory}/keys/installation.pem",
        "ARTIFACT_KEY_REF": f"file:{directory}/keys/artifact.key",
        "OWNER_HANDLE": "",
        "OWNER_EMAIL": "",
        "OWNER_FINGERPRINT": "",
        "OWNER_KEY_FILE": "",
        "DJANGO_SETTINGS_MODULE": "config.settings",
    }


def _play(arguments: list[str], environment: dict[str, str]) -> tuple[int, dict[str, Any] | None]:
    from config.supervision import run_to_end

    code, output = run_to_end(["-m", "config.demo", *arguments], environment)
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return code, json.loads(lines[-1]) if lines else None


def _lost_answer(report: dict[str, Any]) -> str:
    """The story in a few lines, of what was counted and seen."""
    effect, after = report["effect"], report["effect_after"]
    lines = [
        f"POSTs counted at the provider: {report['posts']}",
        f"the act, after its answer was lost: {effect.get('phase')} ({effect.get('reason')})",
        f"a look again in the sender's Sent mailbox: {report['observation']['outcome']}",
        f"the act, after the look: {after.get('phase')} ({after.get('reason')}), as it was",
        "as told" if report["ok"] else "NOT as told",
    ]
    return "\n".join(lines)


def _as_text(report: dict[str, Any]) -> str:
    lines = [f"{name:<13} {json.dumps(report[name])}" for name in _SHOWN]
    lines += [f"reply         {json.dumps(reply)}" for reply in report["replies"]]
    lines += [f"not as told: {failure}" for failure in report["failures"]]
    verdict = "as told" if report["ok"] else "NOT as told"
    return "\n".join([*lines, f"{verdict}, in {report['seconds']} s"])

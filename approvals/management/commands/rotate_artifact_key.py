"""`rotate_artifact_key`: encrypt drafts and sent bytes with another key."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from approvals.services import rotation
from approvals.services.rotation import Rotation
from guards.fronts.commands import Exit, JsonCommand


class Command(JsonCommand):
    """Adds a key to the file of ARTIFACT_KEY_REF and brings every artifact under it.

    Run again after an interruption, it goes on. Old keys stay until `--forget-old` finds that
    nothing needs them.
    """

    help = (
        "Encrypt all artifacts with another key; go on after an interruption. Where the key lies "
        "in no file, put a new one first there yourself, then run this. "
        "Example: manage.py rotate_artifact_key --dry-run"
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """What to do, and whether only to say it."""
        super().add_arguments(parser)
        parser.add_argument("--dry-run", action="store_true", help="say it, and write nothing")
        parser.add_argument(
            "--forget-old",
            action="store_true",
            help="take the old keys out of the file, if nothing needs them any more",
        )

    def perform(self, **options: Any) -> int:
        """Do one of both, and say how far it came."""
        dry_run = options["dry_run"]
        if options["forget_old"]:
            done = rotation.forget_old(dry_run=dry_run)
        else:
            done = rotation.rotate(dry_run=dry_run, progress=self._progress)
        self.emit(_document(done), _sentence(done))
        return Exit.FAILED if done.unreadable else Exit.AS_ASKED

    def _progress(self, artifacts: int) -> None:
        self.remark(f"{artifacts} artifacts …")


def _document(done: Rotation) -> dict[str, object]:
    return {
        "schema": "rotate-artifact-key/1",
        "ok": not done.unreadable,
        "dry_run": done.dry_run,
        "added_key": done.added_key,
        "artifacts": done.artifacts,
        "already": done.already,
        "encrypted": done.encrypted,
        "unreadable": done.unreadable,
        "forgotten_keys": done.forgotten_keys,
    }


def _sentence(done: Rotation) -> str:
    parts = ["Nothing was written." if done.dry_run else "", ""]
    if done.added_key:
        parts[1] = "A new key comes first now." if not done.dry_run else "A new key would be added."
    elif not settings.ARTIFACT_KEY_REF.startswith("file:"):
        parts[1] = "The key lies in no file: put a new one first there, then run this again."
    were = "would be" if done.dry_run else "were"
    parts.append(
        f"{done.encrypted} of {done.artifacts} artifacts {were} encrypted anew, "
        f"{done.already} were under the newest key already, "
        f"{done.forgotten_keys} old keys {were} taken out."
    )
    if done.unreadable:
        parts.append(f"No key opens {', '.join(done.unreadable)}: they were left alone.")
    return " ".join(part for part in parts if part)

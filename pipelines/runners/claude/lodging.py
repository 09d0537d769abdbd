"""A mission's own directory: the worker's HOME, and the files that we write for it.

Each file is new, ours alone (0600) and never written through a link. The worker sees HOME and, read
only, its configuration and prompt; it gets HOME back when its session goes on. Nothing that it has
left there is read by us. The directory goes when the mission has ended.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.utils import timezone

from guards.exceptions import CountersignError
from pipelines import filing
from pipelines.models import Mission

log = structlog.get_logger(__name__)

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

#: /etc of a worker beside `hosts`: one user, and names from `hosts` alone.
_ETC = {
    "passwd": "worker:x:1000:1000:worker:{home}:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
    "group": "worker:x:1000:\nnogroup:x:65534:\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "resolv.conf": "",
}

#: What the program keeps of itself in a HOME that it has used: an empty one has nothing to be moved
#: over from earlier versions, which it would otherwise look for, for some 30 ms.
_STATE = {
    "migrationVersion": 15,
    "opusProMigrationComplete": True,
    "hasResetAutoModeOptInForDefaultOffer": True,
    "seenNotifications": {},
}


def _state() -> dict[str, Any]:
    """The same, with what it would make up at its first start, and write down for some 20 ms.

    The two names are random, as its own would be.
    """
    now = timezone.now().isoformat(timespec="milliseconds")
    return {
        **_STATE,
        "firstStartTime": now.replace("+00:00", "Z"),
        "machineID": secrets.token_hex(32),
        "userID": secrets.token_hex(32),
    }


class LodgingFailed(CountersignError):
    """A mission's own directory cannot be made or written."""

    code = "lodging-failed"
    permanent = False


@dataclass(frozen=True, slots=True)
class Lodging:
    """Where the files of one mission are."""

    root: Path

    @property
    def home(self) -> Path:
        """The worker's HOME."""
        return self.root / "home"

    @property
    def etc(self) -> Path:
        """What takes the place of /etc's own files inside."""
        return self.root / "etc"

    @property
    def servers_file(self) -> Path:
        """The MCP configuration."""
        return self.root / "servers.json"

    @property
    def prompt_file(self) -> Path:
        """The text that is added to the system prompt."""
        return self.root / "prompt.md"

    def furnish(self, *, servers: Mapping[str, Any], prompt: str, hosts: str) -> None:
        """Make it ready for one run, every file new; LodgingFailed where that cannot be."""
        try:
            is_new = not self.root.exists()
            for directory in (self.root, self.home, self.etc):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if is_new:  # later HOME is the worker's, and nothing in it is ours to write
                _write(self.home / ".claude.json", json.dumps(_state()))
            _write(self.servers_file, json.dumps({"mcpServers": servers}))
            _write(self.prompt_file, prompt)
            _write(self.etc / "hosts", hosts)
            for name, text in _ETC.items():
                _write(self.etc / name, text.replace("{home}", str(self.home)))
        except OSError as error:
            raise LodgingFailed(f"{error.filename or self.root}: {error.strerror}") from error

    def changed_before(self) -> set[str]:
        """The paths that earlier runs of the mission have changed."""
        try:
            return set(json.loads(self._changed.read_text()))
        except FileNotFoundError:
            return set()

    def keep_changed(self, paths: Iterable[str]) -> None:
        """Note them for a run that goes on later: the gate looks at all of them."""
        known = sorted(paths)
        if not known and not self._changed.exists():
            return
        try:
            _write(self._changed, json.dumps(known))
        except OSError as error:
            raise LodgingFailed(f"{self._changed}: {error.strerror}") from error

    @property
    def _changed(self) -> Path:
        return self.root / "changed.json"


def of(mission_id: UUID) -> Lodging:
    """The lodging of a mission, whether it is there or not."""
    return Lodging(Path(settings.MISSIONS_DIR).resolve() / str(mission_id))


def clear(mission_id: UUID) -> None:
    """Remove it, whatever its worker has left in it; what cannot be is left to the sweep."""
    root = of(mission_id).root
    if root.is_dir():
        _remove(root)


def sweep() -> int:
    """Remove what is left of missions that have ended, or are not on record; how many."""
    try:
        found = [entry for entry in Path(settings.MISSIONS_DIR).iterdir() if entry.is_dir()]
    except FileNotFoundError:
        return 0
    named = {entry.name: entry for entry in found if _is_id(entry.name)}
    living = Mission.objects.filter(pk__in=named, status=Mission.Status.OPEN)
    kept = {str(pk) for pk in living.values_list("pk", flat=True)}
    gone = [entry for name, entry in named.items() if name not in kept]
    return sum(_remove(entry) for entry in gone)


def _remove(directory: Path) -> bool:
    try:
        filing.empty(directory, and_itself=True)
    except (CountersignError, OSError) as error:
        log.warning("a mission's directory stays", directory=str(directory), detail=str(error))
        return False
    return True


def _is_id(name: str) -> bool:
    try:
        return str(UUID(name)) == name
    except ValueError:
        return False


def _write(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, _NEW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)

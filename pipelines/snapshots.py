"""What really changed below a directory: two looks at it by `lstat`, compared.

A worker says which files it changed; this is how that is checked afterwards (W14). No content is
read, and nothing behind a link is looked at. A file counts as changed when its inode, size, times,
mode or owner differ: `ctime` cannot be set back by a program. A directory counts by its mode and
owner, and by itself only when it came or went empty; what lies in it counts entry by entry, `.git`
included. A link that now leads out of the directory, also by way of others, is named with where it
leads, which lies in no write set: the next writer would follow it.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from pipelines.exceptions import SnapshotRefused

#: More entries than this are not compared: the stage fails instead.
MAX_ENTRIES = 500_000

#: A kernel stamps times in steps of some milliseconds. Nothing that changes after a look may carry
#: the time of before it, so a look that has just seen a change waits this long, in nanoseconds.
_GRAIN = 20_000_000


class Entry(NamedTuple):
    """One entry as `lstat` describes it; times in nanoseconds."""

    inode: int
    device: int
    mode: int
    owner: tuple[int, int]
    size: int
    mtime: int
    ctime: int

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory itself, not a link to one."""
        return stat.S_ISDIR(self.mode)

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link."""
        return stat.S_ISLNK(self.mode)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All entries below a directory by relative path.

    `unreadable` maps directories to why not, `outward` links to where outside they lead.
    """

    entries: Mapping[str, Entry]
    unreadable: Mapping[str, str] = field(default_factory=dict)
    outward: Mapping[str, str] = field(default_factory=dict)

    def repositories(self) -> list[str]:
        """The paths of all `.git`, directories and files: what is in them, programs run."""
        found = (path for path, entry in self.entries.items() if not entry.is_link)
        return sorted(path for path in found if path.rpartition("/")[2] == ".git")

    def special(self) -> list[str]:
        """The paths that are neither files, directories nor links: sockets, pipes, devices."""
        plain = {stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK}
        return sorted(
            path for path, entry in self.entries.items() if stat.S_IFMT(entry.mode) not in plain
        )


def snapshot(directory: Path) -> Snapshot:
    """Look at everything below a directory. SnapshotRefused when it is none, or holds too much."""
    entries: dict[str, Entry] = {}
    unreadable: dict[str, str] = {}
    if not directory.is_dir():
        raise SnapshotRefused(f"{directory} is not a directory")
    waiting = [""]
    while waiting:
        place = waiting.pop()
        try:
            found = list(islice(_look_into(directory, place), MAX_ENTRIES + 1 - len(entries)))
        except OSError as error:
            if not place:
                raise SnapshotRefused(f"{directory}: {error.strerror}") from error
            unreadable[place] = error.strerror or "cannot be read"
            continue
        entries.update(found)
        waiting += [path for path, entry in found if entry.is_directory]
        if len(entries) > MAX_ENTRIES:
            raise SnapshotRefused(f"{directory} holds more than {MAX_ENTRIES} entries")
    outward = _leading_out(directory, [path for path in entries if entries[path].is_link])
    _let_the_clock_pass(entries)
    return Snapshot(entries, unreadable, outward)


def changes(before: Snapshot, after: Snapshot) -> list[str]:
    """The paths that came, went or changed between two looks, sorted; a renamed one counts twice.

    They are relative, but for where a link newly leads to outside. A name that is not UTF-8 is
    shown with its bytes escaped.
    """
    found = {
        path
        for path in before.entries.keys() | after.entries.keys()
        if _differs(path, before, after)
    }
    found -= _explained(found, before, after)
    led_to = {
        target
        for path, target in after.outward.items()
        if path in found or before.outward.get(path) != target
    }
    return sorted(_shown(path) for path in found | led_to)


def _look_into(directory: Path, place: str) -> Iterator[tuple[str, Entry]]:
    with os.scandir(directory / place if place else directory) as found:
        for entry in found:
            path = f"{place}/{entry.name}" if place else entry.name
            try:
                yield path, _entry(entry.stat(follow_symlinks=False))
            except FileNotFoundError:
                continue  # gone between the listing and the look: as if it had gone before


def _leading_out(directory: Path, links: list[str]) -> dict[str, str]:
    """The links whose target lies outside, as it is written or by way of further links.

    By the absolute path of that.
    """
    root = Path(os.path.normpath(directory.absolute()))
    real = os.path.realpath(root)
    found = {}
    for path in links:
        here = root / path
        try:
            target = Path(os.path.normpath(here.parent / here.readlink()))
        except OSError:
            continue  # replaced since it was listed: the next look sees what is there then
        if not target.is_relative_to(root):
            found[path] = str(target)
        elif not (led_to := Path(os.path.realpath(here))).is_relative_to(real):
            found[path] = str(led_to)
    return found


def _entry(status: os.stat_result) -> Entry:
    return Entry(
        status.st_ino,
        status.st_dev,
        status.st_mode,
        (status.st_uid, status.st_gid),
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def _let_the_clock_pass(entries: Mapping[str, Entry]) -> None:
    newest = max((entry.ctime for entry in entries.values()), default=0)
    if abs(time.time_ns() - newest) < _GRAIN:
        time.sleep(_GRAIN / 1e9)


def _differs(path: str, before: Snapshot, after: Snapshot) -> bool:
    old, new = before.entries.get(path), after.entries.get(path)
    if old is None or new is None:
        return True
    if not (old.is_directory and new.is_directory):
        return old != new
    if (path in before.unreadable) != (path in after.unreadable):
        return True
    if path in after.unreadable:
        return old != new  # nothing in it can be compared, so its own times have to do
    if (old.mode, old.owner) != (new.mode, new.owner):
        return True
    return old.mtime == new.mtime and old.ctime != new.ctime  # attributes, or a time set back


def _explained(found: set[str], before: Snapshot, after: Snapshot) -> set[str]:
    """Directories that came or went only because of what lies in them, which is named itself."""
    with_content = {path.rpartition("/")[0] for path in found}
    return {
        path
        for path in found & with_content
        if _is_only_directory(before.entries.get(path), after.entries.get(path))
    }


def _is_only_directory(old: Entry | None, new: Entry | None) -> bool:
    """Whether a path was a directory on one side and nothing on the other."""
    present = [entry for entry in (old, new) if entry is not None]
    return len(present) == 1 and present[0].is_directory


def _shown(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "backslashreplace")

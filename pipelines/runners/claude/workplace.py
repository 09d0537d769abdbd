"""What of the file system a worker sees: its workplace and its pipeline's directory, nothing else.

Read-only, but for the places that its write set names and, where the command returns files, its
pipeline's directory. A place that would show our own data, secrets, program or account is refused.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from django.conf import settings

from pipelines.exceptions import SandboxMissing
from pipelines.runners.claude.destinations import Destination
from pipelines.runners.claude.lodging import Lodging
from pipelines.runners.claude.sandbox import Walls
from pipelines.snapshots import Snapshot
from pipelines.types import CommandSpec, Job
from teams import selectors as teams

#: Directories of a system, none of which is a project.
_SYSTEM = frozenset(
    {
        *("/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/opt", "/proc"),
        *("/root", "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/var"),  # noqa: S108
    }
)

#: Settings of directories that no worker may see whole.
_OURS = ("DATA_DIR", "SECRETS_DIR", "PIPELINES_DIR", "MISSIONS_DIR")

#: Settings of what may lie in a file of its own, and how they begin then.
_FILES = {
    "DATABASE_URL": "sqlite:///",
    "CLAUDE_API_KEY_REF": "file:",
    "INSTALLATION_KEY_REF": "file:",
    "ARTIFACT_KEY_REF": "file:",
}

#: Entries of one directory that are closed one by one.
_MOST_CLOSED = 2_000


def directory_of(job: Job) -> Path:
    """Where the worker works, links followed."""
    place = job.workplace or job.directory
    if place is None:
        raise SandboxMissing("a worker needs a place to work in, and its stage has none")
    return place.resolve()


def walls(
    job: Job,
    lodging: Lodging,
    doors: tuple[Destination, ...],
    program: Path,
    before: Snapshot,
) -> Walls:
    """The walls for one run of a stage's worker; SandboxMissing for what may not be shown.

    `before` is what its workplace holds: sockets, pipes and devices there are closed to it, and a
    `.git` inside of what it may write is so only where the write set names it.
    """
    work = directory_of(job)
    own = (job.directory or work).resolve()
    _refuse_seen_by_all()
    if work != own:
        _refuse_exposing(work)
    opened, closed = _opened(job.spec, work, own)
    hidden = tuple(_other_projects(job.spec, work)) if work != own else ()
    git = _inside(opened, work, set(before.repositories()) - set(job.spec.write_set))
    closed |= git - _inside(hidden, work, before.repositories())
    special = before.special()
    seen = {work, own, lodging.servers_file, lodging.prompt_file, *closed} - opened
    return Walls(
        directory=work,
        writable=(lodging.home, *sorted(opened)),
        readable=tuple(sorted(seen)),
        hidden=hidden,
        blocked=tuple({work / path for path in special} - _inside(hidden, work, special)),
        etc=lodging.etc,
        doors=doors,
        programs=(program,),
    )


def _inside(directories: Iterable[Path], work: Path, paths: Iterable[str]) -> set[Path]:
    """Those of the paths that are, or lie below, one of the directories."""
    places = [work / path for path in paths]
    return {place for place in places for one in directories if place.is_relative_to(one)}


def _opened(spec: CommandSpec, work: Path, own: Path) -> tuple[set[Path], set[Path]]:
    """Directories that may be written to, and what in them may not.

    A file is replaced by a new one beside it, so the directory around it is open; what else lies
    there stays closed. A name that is new there is seen afterwards, and fails the mission.
    """
    entries = {work / entry: _real(work, entry) for entry in spec.write_set}
    opened = {own} if spec.files else set()
    closed: set[Path] = set()
    for place, real in entries.items():
        opened.add(real)
        if not place.is_dir():
            closed.update(_rest_of(real, kept={*entries, *entries.values()}))
    return opened, closed - opened


def _real(work: Path, entry: str) -> Path:
    """The directory that an entry is, or the nearest one around it, and none by way of a link.

    An earlier worker may have put that link there, to what this one is to have closed.
    """
    place = work / entry
    while not place.is_dir() and place != work:
        place = place.parent
    real = place.resolve()
    if real != place:
        raise SandboxMissing(f"the write set's {entry!r} leads by a link to {real}")
    return real


def _rest_of(directory: Path, kept: set[Path]) -> Iterator[Path]:
    for child in islice(directory.iterdir(), _MOST_CLOSED):
        if child not in kept and not child.is_symlink() and (child.is_dir() or child.is_file()):
            yield child


def _refuse_exposing(work: Path) -> None:
    if str(work) in _SYSTEM:
        raise SandboxMissing(f"{work} is no project's directory")
    for name, place in _our_places():
        if place.is_relative_to(work) or work.is_relative_to(place):
            raise SandboxMissing(
                f"the project's root {work} and {name} ({place}) lie inside one another: a worker "
                "there could read what is not its own. Move one of them"
            )


def _refuse_seen_by_all() -> None:
    """What every worker sees, the system and our interpreter, must hold nothing of ours."""
    for seen in (Path("/usr"), Path(os.path.realpath(sys.base_prefix))):
        for name, place in _private():
            if place.is_relative_to(seen) and (name in _OURS or place.exists()):
                raise SandboxMissing(
                    f"{name} ({place}) lies inside {seen}, which every worker sees: move it"
                )


def _private() -> Iterator[tuple[str, Path]]:
    """Where our data and secrets are, by the names that the operator knows them by."""
    for name in _OURS:
        yield name, Path(getattr(settings, name)).resolve()
    yield ".env", Path(settings.BASE_DIR, ".env").resolve()
    for name, begins in _FILES.items():
        value = getattr(settings, name)
        if value.startswith(begins):
            yield name, Path(value.removeprefix(begins).partition("?")[0]).resolve()


def _our_places() -> Iterator[tuple[str, Path]]:
    yield from _private()
    yield "the program", Path(settings.BASE_DIR).resolve()
    home = Path.home().resolve()
    for name in (".ssh", ".gnupg", ".password-store", ".local/share/keyrings", ".claude"):
        yield f"~/{name}", home / name


def _other_projects(spec: CommandSpec, work: Path) -> Iterator[Path]:
    """Roots of other projects below this one: they are there, and look empty."""
    for project in teams.projects():
        if project.slug != spec.project and project.root:
            root = Path(project.root).resolve()
            if root != work and root.is_relative_to(work) and root.is_dir():
                yield root

"""Which programs may run: an allow-list of directories and files, symlinks followed first."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from guards.exceptions import BinaryNotAllowed

#: One file, many programs: run by its own name it takes its first argument for a program's name.
_MULTI_CALL = frozenset({"busybox", "toybox", "coreutils"})


def resolve_binary(name: str) -> Path:
    """The real path of an allowed program, by bare name or absolute path.

    `settings.ALLOWED_BINARIES` lists directories (everything directly inside) and files. Call it
    when a command is loaded and again when it runs: what a name means may have changed between.
    BinaryNotAllowed says what was wrong.
    """
    if not name or "\0" in name or (("/" in name) and not name.startswith("/")):
        raise BinaryNotAllowed(f"{name!r} is neither a bare name nor an absolute path")
    allowed = [str(entry) for entry in settings.ALLOWED_BINARIES]
    for candidate in _candidates(name, allowed):
        real = os.path.realpath(candidate)
        if _is_program(real):
            return _admit(name, real, allowed)
    raise BinaryNotAllowed(f"there is no program {name!r} in the allowed places")


# Asked several times a stage, and four times slower with a `Path` for each step.


def _candidates(name: str, allowed: list[str]) -> Iterator[str]:
    if name.startswith("/"):
        yield name
        return
    for place in allowed:
        if os.path.isdir(place):  # noqa: PTH112
            yield f"{place}/{name}"
        elif os.path.basename(place.rstrip("/")) == name:  # noqa: PTH119
            yield place


def _admit(name: str, real: str, allowed: list[str]) -> Path:
    above, own_name = os.path.split(real)
    mine = {real, above}
    # What stands there by its real name needs no second look at where the place leads.
    if mine.isdisjoint(allowed) and mine.isdisjoint(map(os.path.realpath, allowed)):
        raise BinaryNotAllowed(f"{name!r} is {real}, which is outside of the allowed places")
    if own_name in _MULTI_CALL:
        raise BinaryNotAllowed(f"{name!r} is a part of {own_name}: allow a program of its own")
    return Path(real)


def _is_program(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116
    except OSError:
        return False
    return stat.S_ISREG(mode) and os.access(path, os.X_OK)

"""Starting a child: argv only, by a supervisor that has the child's limits already."""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from guards.exceptions import InvalidInput, ProcessFailed
from guards.process.binaries import resolve_binary
from guards.process.supervisor import MOST_FILES
from guards.process.supervisors import Supervisor
from guards.process.types import Limits

#: The longest single argument, and the longest environment value, in bytes (Linux's own limit).
MAX_ARGUMENT = 128 * 1024

_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_BASE_ENVIRONMENT = {"PATH": _SYSTEM_PATH, "LANG": "C.UTF-8", "HOME": "/nonexistent"}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all children of one run have in common. `timeout` is in seconds.

    `has_daemons`: what leaves their session is meant to stay.
    """

    env: Mapping[str, str]
    cwd: Path | str | None
    limits: Limits
    timeout: float
    vouched: bool
    pass_fds: Sequence[int] = ()
    has_daemons: bool = False


def order(
    argv: Sequence[str],
    around: Surroundings,
    supervisor: Supervisor,
    *,
    files: Sequence[int],
    is_last: bool,
) -> None:
    """Have one child started in a session of its own, with `files` as its standard ones.

    argv[0] goes through the allow-list unless the caller vouches for it. InvalidInput for an
    argument that cannot be passed on.
    """
    refuse_unpassable(argv, around.env)
    if len(files) + len(around.pass_fds) > MOST_FILES:
        raise InvalidInput(f"more than {MOST_FILES} open files", field="pass_fds")
    program = _find_vouched(argv[0]) if around.vouched else str(resolve_binary(argv[0]))
    supervisor.order(
        [program, *argv[1:]],
        env=_environment(around.env, around.cwd),
        directory=str(around.cwd or Path.cwd()),
        files=[*files, *around.pass_fds],
        numbers=around.pass_fds,
        is_last=is_last,
        adopts=not around.has_daemons,
    )


def answer(argv: Sequence[str], supervisor: Supervisor) -> int:
    """The pid of that child, the next one that was ordered; ProcessFailed where none starts."""
    try:
        return supervisor.answer()
    except OSError as error:
        raise ProcessFailed(f"{argv[0]!r} does not start: {error.strerror}") from error


def _find_vouched(name: str) -> str:
    """The program that this name means to us."""
    found = which(name)
    if found is None:
        raise ProcessFailed(f"{name!r} does not start: there is no such program")
    return os.path.abspath(found)  # noqa: PTH100 - symlinks stay, the name may matter


def _environment(env: Mapping[str, str], cwd: Path | str | None) -> dict[str, str]:
    """Nothing of ours but what is declared; HOME is the working directory, if there is one."""
    home = {"HOME": str(cwd)} if cwd is not None else {}
    return {**_BASE_ENVIRONMENT, **home, **env}


def refuse_unpassable(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """InvalidInput for what cannot be an argument or a variable."""
    if not argv or not argv[0]:
        raise InvalidInput("there is no program to run", field="argv")
    for number, argument in enumerate(argv):
        if "\0" in argument:
            raise InvalidInput(f"argument {number} holds a NUL", field="argv")
        if len(os.fsencode(argument)) >= MAX_ARGUMENT:
            raise InvalidInput(f"argument {number} is longer than 128 KiB", field="argv")
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            raise InvalidInput(f"{name!r} cannot be an environment variable", field="env")


def limits_of(around: Surroundings) -> str:
    """The limits of a run's children, as a supervisor takes them.

    The processor time that follows from the time limit is rounded up to a power of two: one
    supervisor serves runs of many lengths.
    """
    limits, processors = around.limits, os.cpu_count() or 1
    needed = max(1, math.ceil(around.timeout)) * processors
    wanted = {
        "core": 0,
        "cpu": limits.cpu_seconds or 1 << (needed - 1).bit_length(),
        "as": limits.memory,
        "fsize": limits.file_size,
        "nofile": limits.open_files,
    }
    return ",".join(
        f"{name}={_within_ours(name, value)}" for name, value in wanted.items() if value is not None
    )


def _within_ours(name: str, value: int) -> int:
    """No more than our own hard limit, which a child cannot raise."""
    hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))[1]
    return value if hard == resource.RLIM_INFINITY else min(value, hard)

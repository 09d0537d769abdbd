"""Starting a child: argv only, limits and parent-death signal set by small launchers.

`setpriv` and `prlimit` (util-linux) replace themselves by the program, so the child's pid is the
program's; they cost half a millisecond each. `preexec_fn` would cost 26 ms in a large parent, and
is not safe beside threads. Where they are missing (not Linux) the time limit is all there is.
"""

from __future__ import annotations

import math
import os
import resource
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from shutil import which

from guards.exceptions import InvalidInput, ProcessFailed
from guards.process.binaries import resolve_binary
from guards.process.types import Limits

#: The longest single argument, and the longest environment value, in bytes (Linux's own limit).
MAX_ARGUMENT = 128 * 1024

_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_BASE_ENVIRONMENT = {"PATH": _SYSTEM_PATH, "LANG": "C.UTF-8", "HOME": "/nonexistent"}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all children of one run have in common. `timeout` is in seconds."""

    env: Mapping[str, str]
    cwd: Path | str | None
    limits: Limits
    timeout: float
    vouched: bool
    pass_fds: Sequence[int] = ()


def start(
    argv: Sequence[str], around: Surroundings, *, stdin: int, stdout: int, stderr: int
) -> subprocess.Popen[bytes]:
    """Start one child in a session of its own.

    argv[0] goes through the allow-list unless the caller vouches for it. InvalidInput for an
    argument that cannot be passed on, ProcessFailed when the system refuses to start it.
    """
    refuse_unpassable(argv, around.env)
    program = _find_vouched(argv[0]) if around.vouched else str(resolve_binary(argv[0]))
    try:
        return subprocess.Popen(
            [*_launchers(around.limits, math.ceil(around.timeout)), program, *argv[1:]],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=_environment(around.env, around.cwd),
            cwd=around.cwd,
            start_new_session=True,
            pass_fds=around.pass_fds,
        )
    except OSError as error:
        raise ProcessFailed(f"{argv[0]!r} does not start: {error.strerror}") from error


def _find_vouched(name: str) -> str:
    """The program that this name means to us; the launchers must not fail in its place."""
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


def _launchers(limits: Limits, seconds: int) -> tuple[str, ...]:
    prlimit, setpriv = _installed()
    chain: tuple[str, ...] = ()
    if setpriv:
        chain += (setpriv, "--pdeathsig", "KILL", "--")
    if prlimit:
        chain += (prlimit, *_limit_options(limits, seconds), "--")
    return chain


def _limit_options(limits: Limits, seconds: int) -> tuple[str, ...]:
    processors = os.cpu_count() or 1
    wanted = {
        "cpu": limits.cpu_seconds or max(1, seconds) * processors,
        "as": limits.memory,
        "fsize": limits.file_size,
        "nofile": limits.open_files,
    }
    options = (
        f"--{name}={_within_ours(name, value)}"
        for name, value in wanted.items()
        if value is not None
    )
    return ("--core=0", *options)


def _within_ours(name: str, value: int) -> int:
    """No more than our own hard limit, which a child cannot raise."""
    hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))[1]
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


@lru_cache(maxsize=1)
def _installed() -> tuple[str | None, str | None]:
    """The launchers that work here, tried once a process: a busybox may have them by name only."""
    return _usable("prlimit", "--core=0"), _usable("setpriv", "--pdeathsig", "KILL")


def _usable(name: str, *options: str) -> str | None:
    launcher, program = which(name, path=_SYSTEM_PATH), which("true", path=_SYSTEM_PATH)
    if launcher is None or program is None:
        return None
    try:
        tried = subprocess.run(
            [launcher, *options, "--", program], capture_output=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return launcher if tried.returncode == 0 else None


def limits_are_enforced() -> bool:
    """Whether this system has the launchers; `doctor` says so when it has not."""
    return all(_installed())

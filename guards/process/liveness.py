"""Naming a process so that anybody can later tell whether it is provably dead."""

from __future__ import annotations

import os
import socket
from functools import lru_cache
from pathlib import Path

_UNKNOWN = "-"


def this_process() -> str:
    """`host:boot:pid:start` of the calling process.

    `boot` names this boot and this pid namespace, `start` is the kernel's start time in ticks; both
    are `-` where the system does not tell.
    """
    return reference_of(os.getpid())


def reference_of(pid: int) -> str:
    """`host:boot:pid:start` of a process of this host, as `this_process` has it."""
    return f"{_host()}:{_boot()}:{pid}:{_started(pid) or _UNKNOWN}"


def is_dead(reference: str) -> bool:
    """Whether that process is provably dead.

    True for this host after another boot, and for the same boot and pid namespace when no such
    process runs with that start time. False for anything that cannot be proved from here: another
    host, another namespace, a reference that is not one.
    """
    parts = reference.rsplit(":", 3)
    if len(parts) != 4 or not parts[2].isdecimal():
        return False
    host, boot, pid, started = parts
    if host != _host() or _UNKNOWN in (boot, _boot()):
        return False
    if boot.partition("/")[0] != _boot().partition("/")[0]:
        return True
    return boot == _boot() and _is_gone(int(pid), started)


def _is_gone(pid: int, started: str) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass  # it is there, or cannot be: the start time below decides
    seen = _started(pid)
    return seen is not None and started != _UNKNOWN and seen != started


def _started(pid: int) -> str | None:
    """The start time in ticks, `gone` for a zombie, None where it cannot be read."""
    fields = _status_fields(pid)
    if not fields:
        return None
    return "gone" if fields[0] in ("Z", "X") else fields[19]


def _status_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on (proc(5)); nothing where it is unreadable."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


@lru_cache(maxsize=1)
def _host() -> str:
    return socket.gethostname()


@lru_cache(maxsize=1)
def _boot() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return _UNKNOWN

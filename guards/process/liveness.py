"""Naming a process so that anybody can later tell whether it is provably dead."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
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


def end_group(reference: str) -> bool:
    """Kill what is left of the process group that a child led; False when nothing was.

    For recovery, after the worker that watched the child died: `reference` is what
    `reference_of(pid)` said when the child was started. The leader may be gone already.
    """
    host, boot, pid, started = (reference.rsplit(":", 3) + [""] * 4)[:4]
    if host != _host() or boot != _boot() or not (pid.isdecimal() and started.isdecimal()):
        return False
    leader = _started(int(pid))
    if leader not in (None, "gone", started) or not _has_members(int(pid), int(started)):
        return False
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(int(pid), signal.SIGKILL)
        return True
    return False


def _has_members(group: int, started: int) -> bool:
    """Whether processes of that session and group run that are not older than its leader."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        fields = _status_fields(int(entry.name))
        if not fields or fields[0] in ("Z", "X"):
            continue
        if fields[2:4] == [str(group)] * 2 and int(fields[19]) >= started:
            return True
    return False


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

"""The walls around a worker: bubblewrap, with nothing inside but what its contract needs.

New namespaces for everything: no network but loopback, no process but its own, no host name. The
file system is built from nothing: the system's programs read-only, the worker's own HOME, its
workplace (read-only but for its write set), and a small `/etc`. Paths are what they are outside.
It holds whatever the worker's own settings, hooks or permission rules say, as any user and as root.
"""

from __future__ import annotations

import json
import os
import select
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

import structlog
from django.conf import settings

from guards import process
from guards.exceptions import ProcessFailed
from pipelines.exceptions import SandboxMissing
from pipelines.runners.claude import seccomp
from pipelines.runners.claude.destinations import Destination, Place
from pipelines.runners.claude.egress import Egress

if TYPE_CHECKING:
    from pipelines.runners.claude.broker.exchange import Broker

log = structlog.get_logger(__name__)

#: Values of CLAUDE_SANDBOX.
REQUIRED, OFF = "required", "off"

_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_INSIDE = Path(__file__).with_name("inside.py")
_FIRST_PROGRAM = "/run/inside.py"

#: What programs need of /etc, all of it public.
_OF_ETC = (
    *("ld.so.cache", "alternatives", "localtime", "mime.types", "services", "protocols"),
    *("ssl/certs", "ssl/openssl.cnf", "pki/ca-trust/extracted", "pki/tls/certs"),
    "ca-certificates",
)
_SYSTEM_LINKS = ("bin", "sbin", "lib", "lib32", "lib64")
_WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
#: The smallest size of a file system in memory, in bytes.
_NOTHING = "4096"
_DEVICES = ("null", "zero", "full", "random", "urandom")
_TEMPORARY_BYTES = 1024**3
_PRIVILEGED_PORTS = 1024
#: The worker's user inside, whoever runs it outside.
_USER = "1000"

_PROBE_SECONDS = 10.0
#: How long processes that were killed may take to be gone.
_EMPTY_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Walls:
    """What is inside beside the system; `directory` is where the program starts.

    `etc` holds files that take their place in /etc, `programs` are read-only like the system's.
    `hidden` are directories that lie inside a visible one and look empty, `blocked` are sockets,
    pipes and devices there: whoever opens those reaches what is behind them, read-only or not.
    """

    directory: Path
    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    blocked: tuple[Path, ...] = ()
    etc: Path | None = None
    doors: tuple[Destination, ...] = ()
    programs: tuple[Path, ...] = ()


class Inhabitants:
    """All processes inside, known by their first one: when that has ended, so have all others.

    bwrap itself may end a moment earlier, or be killed: what was inside could still write then.
    """

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        self._is_told = False
        self._first: int | None = None

    def note(self, _: int) -> None:
        """bwrap was started: it tells which process is the first one inside."""
        self._is_told = True
        os.close(self.writing)
        said = b""
        while b"}" not in said and (chunk := os.read(self._reading, 1024)):
            said += chunk
        with suppress(ValueError, KeyError, ProcessLookupError):
            self._first = os.pidfd_open(json.loads(said)["child-pid"])

    def wait(self) -> None:
        """Until nothing is left inside; what cannot be ended is on record."""
        os.close(self._reading)
        if not self._is_told:
            os.close(self.writing)
        if self._first is None:
            return
        waiting = select.poll()
        waiting.register(self._first, select.POLLIN)
        if not waiting.poll(_EMPTY_SECONDS * 1000):
            log.error("a sandbox does not become empty", seconds=_EMPTY_SECONDS)
        os.close(self._first)


@dataclass(frozen=True, slots=True)
class Start:
    """How a program is started inside: its argument vector, its open files, whom to tell.

    `open_doors` lets it reach its destinations, where its doors were to be shut at first.
    """

    argv: list[str]
    descriptors: list[int]
    on_start: Callable[[int], None]
    open_doors: Callable[[], None]


def is_wanted() -> bool:
    """Whether the operator leaves workers confined."""
    return bool(settings.CLAUDE_SANDBOX != OFF)


def require() -> None:
    """SandboxMissing, with what to do about it, unless a sandbox really works here."""
    reason = missing()
    if reason:
        raise SandboxMissing(
            f"workers with tools of their own cannot be confined here: {reason}. Install "
            "bubblewrap and let this account make user namespaces (sysctl "
            "kernel.unprivileged_userns_clone=1; on Ubuntu an AppArmor profile for bwrap; in a "
            "container, a seccomp profile that allows them), or set CLAUDE_SANDBOX=off, which lets "
            "workers read and write all that this account can"
        )


#: Walls with a door that takes a capability to open, as one to a server behind TLS does.
_TRIAL = Walls(Path("/run"), doors=(Destination(Place("localhost", 443), "127.0.0.1"),))

_works: set[tuple[str, float]] = set()


def missing() -> str:
    """Why there is no working sandbox; "" when there is one. Tried once a process, while it works.

    The trial starts the same walls that a worker gets, around a program that does nothing.
    """
    found = which("bwrap", path=_SYSTEM_PATH)
    if found is None:
        return "bubblewrap (bwrap) is not installed"
    known = (found, Path(found).stat().st_mtime)
    if known in _works:
        return ""
    reason = _try()
    if not reason:
        _works.add(known)
    return reason


def _try() -> str:
    try:
        with start(_TRIAL, ["/usr/bin/env", "true"]) as begun:
            ended = process.run(
                begun.argv,
                timeout=_PROBE_SECONDS,
                vouched=True,
                pass_fds=begun.descriptors,
                on_start=begun.on_start,
            )
    except (ProcessFailed, OSError) as error:
        return str(error)
    if ended.succeeded:
        return ""
    said = ended.stderr.decode("utf-8", "replace").strip().splitlines()
    return said[-1][:300] if said else f"bwrap ended with exit code {ended.exit_code}"


@contextmanager
def filter_file() -> Iterator[int | None]:
    """The system call filter as an open file for one start; None on unknown machines."""
    program = seccomp.program()
    if program is None:
        yield None
        return
    reading, writing = os.pipe()
    try:
        os.write(writing, program)
        os.close(writing)
        yield reading
    finally:
        os.close(reading)


@contextmanager
def start(
    walls: Walls, program: Sequence[str], *, shut: bool = False, broker: Broker | None = None
) -> Iterator[Start]:
    """What starts `program` inside, once. The block ends when nothing is left of it inside.

    `shut`: nothing outside can be reached until the doors are opened. `broker` answers at the door
    to the Messages API.
    """
    inhabitants = Inhabitants()
    with Egress(walls.doors, shut=shut, broker=broker) as egress, filter_file() as filtering:
        options = ["--info-fd", str(inhabitants.writing)]
        descriptors = [egress.channel, inhabitants.writing]
        if filtering is not None:
            options += ["--seccomp", str(filtering)]
            descriptors.append(filtering)
        vector = _argv(walls, program, egress.channel, options)
        try:
            yield Start(vector, descriptors, inhabitants.note, egress.open)
        finally:
            inhabitants.wait()


def _argv(walls: Walls, program: Sequence[str], channel: int, options: Sequence[str]) -> list[str]:
    interpreter = os.path.realpath(sys.executable)
    doors = ",".join(f"{door.address}:{door.place.port}" for door in walls.doors)
    return [
        which("bwrap", path=_SYSTEM_PATH) or "bwrap",
        *_namespaces(walls.doors),
        *_system(walls.programs),
        *_etc(walls.etc),
        *_places(walls),
        *("--remount-ro", "/", "--chdir", str(walls.directory)),
        *options,
        *("--", interpreter, "-I", "-S", _FIRST_PROGRAM, str(channel), doors),
        *program,
    ]


def _namespaces(doors: Iterable[Destination]) -> Iterator[str]:
    yield from ("--unshare-all", "--unshare-user", "--uid", _USER, "--gid", _USER)
    yield from ("--hostname", "worker", "--die-with-parent", "--new-session", "--cap-drop", "ALL")
    if any(door.place.port < _PRIVILEGED_PORTS for door in doors):
        yield from ("--cap-add", "CAP_NET_BIND_SERVICE")  # given up before the worker starts


def _system(programs: Iterable[Path]) -> Iterator[str]:
    """The installed programs, devices without a terminal, and the interpreter of the first one."""
    yield from ("--ro-bind", "/usr", "/usr", "--tmpfs", "/dev")
    yield from _proc()
    for name in _SYSTEM_LINKS:
        place = Path("/", name)
        if place.is_symlink():
            yield from ("--symlink", str(place.readlink()), str(place))
        elif place.is_dir():
            yield from ("--ro-bind", str(place), str(place))
    for name in _DEVICES:
        yield from ("--dev-bind", f"/dev/{name}", f"/dev/{name}")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        yield from ("--symlink", f"/proc/self/fd/{number}", f"/dev/{name}")
    yield from ("--symlink", "/proc/self/fd", "/dev/fd")
    yield from ("--size", str(_TEMPORARY_BYTES), "--tmpfs", "/dev/shm", "--remount-ro", "/dev")  # noqa: S108
    yield from ("--size", str(_TEMPORARY_BYTES), "--tmpfs", "/tmp")  # noqa: S108 - its own
    for own in (Path(os.path.realpath(sys.base_prefix)), *programs):
        if not own.is_relative_to("/usr"):
            yield from ("--ro-bind", str(own), str(own))
    yield from ("--ro-bind", str(_INSIDE), _FIRST_PROGRAM)


def _proc() -> Iterator[str]:
    """The processes inside, and `/proc/sys` to read: nothing of the kernel that could be written.

    Root outside stays root to the kernel's own files, without any capability: it could name the
    program that a crash starts. So what is beside processes is closed, as any user sees it.
    """
    yield from ("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys")
    with os.scandir("/proc") as found:  # by far most of them are processes
        entries = [entry for entry in found if not entry.name.isdecimal()]
    for entry in sorted(entries, key=attrgetter("name")):
        if entry.name == "sys" or entry.is_symlink():
            continue
        mode = entry.stat().st_mode
        if stat.S_ISDIR(mode):
            yield from ("--size", _NOTHING, "--tmpfs", entry.path)
        elif mode & _WRITABLE or not mode & stat.S_IROTH:
            yield from ("--ro-bind", "/dev/null", entry.path)


def _etc(own: Path | None) -> Iterator[str]:
    for name in _OF_ETC:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    for file in sorted(own.iterdir()) if own is not None else ():
        yield from ("--ro-bind", str(file), f"/etc/{file.name}")


def _places(walls: Walls) -> Iterator[str]:
    """Visible places, outer ones first, so that an inner one may be more open or more closed."""
    wanted = [
        *(("--ro-bind", place) for place in walls.readable),
        *(("--bind", place) for place in walls.writable),
        *(("--tmpfs", place) for place in walls.hidden),
    ]
    for option, place in sorted(wanted, key=lambda entry: len(entry[1].parts)):
        if option == "--tmpfs":
            yield from ("--size", _NOTHING, option, str(place))
        else:
            yield from (option, str(place), str(place))
    for place in walls.hidden:
        yield from ("--remount-ro", str(place))
    for place in walls.blocked:
        yield from ("--ro-bind", "/dev/null", str(place))

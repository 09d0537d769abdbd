"""A small process between us and a run's children: it starts them, and none of them outlives it.

It has the limits that its children inherit, so that no program begins without them, and it is the
parent of all that they leave behind (`PR_SET_CHILD_SUBREAPER`): also of what has left its session
and cleared its environment. When the run is over, or whoever started it has died in any way, it
ends all of that. It is small, so that a child costs little more than the program itself: the same
from a large process takes launchers, each of them a program of its own.

`main` is given CHANNEL, the number of an open stream socket, and LIMITS, `name=value,…` of
`resource`. What is said on the channel are messages: a length and the `marshal` of a tuple. Nothing
but the standard library is imported, and of that as little as there can be: a process that starts
its first program waits for it.
"""

# ruff: noqa: PTH123, PTH208, SIM105 - what pathlib and contextlib import takes longer than all this

from __future__ import annotations

# Without the enumerations of `signal` and `socket`, which take half of the time to load.
import _signal as signal  # type: ignore[import-not-found]
import _socket as socket
import errno
import fcntl
import marshal
import os
import resource
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    #: A word and what belongs to it. To us: `start` (with open files), `kill`, `end`. From us:
    #: `started`, `refused`, `ended` (one child), `over` (the run).
    Message = tuple[Any, ...]

LENGTH = 4
#: More open files than any start has.
MOST_FILES = 64

# Of linux/prctl.h: PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER.
_DUMPABLE, _SUBREAPER = 4, 36
#: How long what was killed may take to be gone, in seconds.
_GONE_SECONDS = 10.0
#: How often it is looked after meanwhile, in milliseconds: what starts others may be quick.
_LOOK_MILLISECONDS = 20
#: The share of its processor time that it uses itself at most, before another takes its place.
_WORN = 0.1
#: What Python ignores, and a program must not.
_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)
_INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGXCPU)


def write(message: Message) -> bytes:
    """A message as it goes over the channel."""
    text = marshal.dumps(message)
    return len(text).to_bytes(LENGTH, "little") + text


def read(text: bytes) -> Message:
    """A message without its length."""
    message: Message = marshal.loads(text)  # noqa: S302 - both ends are this program
    return message


class Supervisor:
    """Serves one channel, one run after the other, until it is closed."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._running: list[int] = []
        self._zombies: list[int] = []
        self._codes: dict[int, int] = {}
        self._in_hand = self._is_complete = False
        self._adopts = False
        self._wakes, waking = os.pipe()
        os.set_blocking(self._wakes, False)
        os.set_blocking(waking, False)
        for number in (signal.SIGCHLD, *_INTERRUPTIONS):
            # A handler that does nothing: what is ignored would stay so in every child.
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
        self._ready = select.poll()
        self._ready.register(channel, select.POLLIN)
        self._ready.register(self._wakes, select.POLLIN)

    def serve(self) -> None:
        """Until the channel is closed; nothing of any run is left then."""
        try:
            while True:
                ready = {descriptor for descriptor, _ in self._ready.poll()}
                if self._wakes in ready:
                    self._drain()
                    self._tell_ends()
                if self._channel.fileno() in ready:
                    self._obey()
        except (OSError, EOFError):  # whoever had the other end is gone
            pass
        finally:
            self._end_all()

    def _drain(self) -> None:
        try:
            while os.read(self._wakes, 512):
                pass
        except BlockingIOError:
            pass

    def _obey(self) -> None:
        head, files = self._receive_head()
        word, *rest = read(self._receive(int.from_bytes(head, "little")))
        if word == "start":
            self._start(files, *rest)
        elif word == "kill":
            self._kill_groups()
        elif self._in_hand:  # else the run was over by itself, which is said already
            self._say_over(is_empty=self._end_all())

    def _receive_head(self) -> tuple[bytes, list[int]]:
        head, extra, _, _ = self._channel.recvmsg(LENGTH, socket.CMSG_SPACE(4 * MOST_FILES))
        files = [file for _, _, sent in extra for file in memoryview(sent).cast("i").tolist()]
        for file in files:
            os.set_inheritable(file, False)
        if not head:
            raise EOFError
        return head + self._receive(LENGTH - len(head)), files

    def _receive(self, length: int) -> bytes:
        parts = bytearray()
        while len(parts) < length:
            part = self._channel.recv(length - len(parts))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)

    def _say(self, *message: Any) -> None:
        self._channel.sendall(write(message))

    # --- children ---------------------------------------------------------------------------------

    def _start(
        self,
        files: list[int],
        argv: list[bytes],
        env: Mapping[bytes, bytes],
        directory: bytes,
        numbers: Sequence[int],
        is_last: bool,
        adopts: bool,
    ) -> None:
        try:
            if len(files) < 3 + len(numbers):  # those that it may not have are not delivered
                raise OSError(errno.EMFILE, "")
            self._adopt(adopts)
            pid = spawn(argv, env, directory, dict(zip((0, 1, 2, *numbers), files, strict=True)))
        except OSError as error:
            self._say("refused", error.errno or 0)
            return
        finally:
            for file in files:
                os.close(file)
        self._running.append(pid)
        self._in_hand, self._is_complete = True, is_last
        self._say("started", pid)

    def _adopt(self, wanted: bool) -> None:
        if wanted != self._adopts:
            self._adopts = adopt(wanted)

    def _tell_ends(self) -> None:
        """Say who has ended. They stay zombies while others run, so that their groups stay theirs.

        Where all have ended and have left nothing behind, the run is over.
        """
        running = len(self._running)
        for pid in [*self._running]:
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            if ended is None:
                continue
            exited = ended.si_code == os.CLD_EXITED
            self._codes[pid] = ended.si_status if exited else -ended.si_status
            self._running.remove(pid)
            self._zombies.append(pid)
            if self._is_complete and self._adopts and not self._running and self._reap():
                self._say_over(is_empty=True)
            else:
                self._say("ended", pid, self._codes[pid])
        if self._running and len(self._running) == running:
            self._reap_adopted()

    def _say_over(self, *, is_empty: bool) -> None:
        codes, self._codes = self._codes, {}
        self._running, self._zombies = [], []
        self._in_hand = self._is_complete = False
        self._say("over", codes, is_empty and not _is_worn())

    # --- their end --------------------------------------------------------------------------------

    def _kill_groups(self) -> None:
        for pid in (*self._running, *self._zombies):
            _kill(os.killpg, pid)

    def _end_all(self) -> bool:
        """Kill all there is and wait for its end; False where something does not end.

        Whatever a killed process leaves becomes ours, so each look finds the next ones.
        """
        self._kill_groups()
        until = time.monotonic() + _GONE_SECONDS
        while not self._reap():
            for pid in children():
                _kill(os.kill, pid)
            if time.monotonic() > until:
                return False
            waiting = select.poll()
            waiting.register(self._wakes, select.POLLIN)
            waiting.poll(_LOOK_MILLISECONDS)
            self._drain()
        return True

    def _reap_adopted(self) -> None:
        """Take in those that were left behind and have ended: a long run may leave very many."""
        leaders = {*self._running, *self._zombies}
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)) is not None:
            if ended.si_pid in leaders:  # which stays, and hides the others
                for pid in {*children()} - leaders:
                    os.waitpid(pid, os.WNOHANG)
                return
            os.waitpid(ended.si_pid, os.WNOHANG)

    def _reap(self) -> bool:
        """Take in all that has ended; whether there is no child any more."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return False
                if pid in self._zombies:
                    self._zombies.remove(pid)
                elif pid in self._running:
                    self._running.remove(pid)
                    self._codes[pid] = os.waitstatus_to_exitcode(status)
        except ChildProcessError:
            return True


def _kill(kill: Callable[[int, int], None], pid: int) -> None:
    try:
        kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def spawn(
    argv: list[bytes], env: Mapping[bytes, bytes], directory: bytes, files: Mapping[int, int]
) -> int:
    """Start a program in a session of its own; `files` are its open files by their numbers there.

    OSError says why it does not start.
    """
    beyond = max(files) + 1  # so that none is in the way of another one's number
    high: dict[int, int] = {}
    try:
        for number, file in files.items():
            high[number] = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, beyond)
        os.chdir(directory)
        return os.posix_spawn(
            argv[0],
            argv,
            env,
            file_actions=[(os.POSIX_SPAWN_DUP2, file, number) for number, file in high.items()],
            setsid=True,
            setsigmask=[],
            setsigdef=_IGNORED,
        )
    finally:
        os.chdir("/")
        for file in high.values():
            os.close(file)


def children() -> list[int]:
    """The processes whose parent this one is, dead or alive; [] where the system does not tell."""
    mine = os.getpid()
    try:
        with open(f"/proc/{mine}/task/{mine}/children") as told:
            return [int(pid) for pid in told.read().split()]
    except OSError:
        return [
            int(name) for name in _listed("/proc") if name.isdecimal() and _parent(name) == mine
        ]


def _listed(place: str) -> list[str]:
    try:
        return os.listdir(place)
    except OSError:
        return []


def _parent(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as told:
            return int(told.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def adopt(wanted: bool) -> bool:
    """Whether what children leave behind becomes ours, as `wanted`. Only Linux can do so."""
    return _set(_SUBREAPER, int(wanted)) and wanted


def _set(option: int, value: int) -> bool:
    if sys.platform != "linux":
        return False
    import ctypes

    return not ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def limit(wanted: str) -> None:
    """Put `name=value,…` on this process, and so on all that it will start."""
    for name, _, value in (one.partition("=") for one in wanted.split(",")):
        resource.setrlimit(getattr(resource, f"RLIMIT_{name.upper()}"), (int(value), int(value)))


def _is_worn() -> bool:
    """Whether the processor time that it has may not last for another run."""
    soft, _ = resource.getrlimit(resource.RLIMIT_CPU)
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    return soft != resource.RLIM_INFINITY and used > soft * _WORN


def main() -> None:
    """What `launching` starts."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(
        channel.fileno(), False
    )  # a child must neither hold it open nor speak for us
    limit(sys.argv[2])
    _set(_DUMPABLE, 0)  # a child of the same user neither looks into us nor takes us over
    Supervisor(channel).serve()

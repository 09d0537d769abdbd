"""One bounded run of a GnuPG program, on files that have no name.

Keyring, signature, text and status output travel as anonymous files in memory (`memfd`), reached as
/dev/fd/N: there is no temporary home to fill, to leak, to clean up, or to survive a kill, and no
socket path to be too long (DES-003). Systems without memfd get private temporary files.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import lru_cache
from shutil import which

from guards.exceptions import OpenPGPUnavailable
from guards.openpgp.base import TIMEOUT
from guards.process.waiting import wait_for_exit

#: A folder that does not exist: nobody's keys and nobody's configuration count.
NOWHERE = "/nonexistent"

_ENVIRONMENT = {"LC_ALL": "C", "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": NOWHERE}
_MAX_OUTPUT_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Invocation:
    """What one run gave back: `exit_code` is negative for a signal, as in `subprocess`."""

    exit_code: int
    status: bytes
    output: bytes


@dataclass(frozen=True, slots=True)
class GatewayFile:
    """A file that we and one GnuPG process share: our descriptor, which it inherits, and a path."""

    descriptor: int
    path: str

    def write(self, content: bytes) -> None:
        """Put `content` at its beginning, where whoever opens the path reads."""
        written = 0
        while written < len(content):
            written += os.pwrite(self.descriptor, memoryview(content)[written:], written)

    def read(self, most: int = _MAX_OUTPUT_BYTES) -> bytes:
        """What a program wrote; OpenPGPUnavailable when that is more than `most` bytes."""
        size = os.fstat(self.descriptor).st_size
        if size > most:
            raise OpenPGPUnavailable(f"GnuPG wrote {size} bytes")
        return os.pread(self.descriptor, size, 0)


@lru_cache(maxsize=8)
def _find(program: str, path: str) -> str | None:
    return which(program, path=path)


def find_program(program: str) -> str:
    """The full path of `gpg` or `gpgv`; OpenPGPUnavailable when it is not installed."""
    found = _find(program, os.environ.get("PATH", os.defpath))
    if found is None:
        raise OpenPGPUnavailable(f"{program} is not installed: install GnuPG")
    return found


def invoke(
    program: str,
    arguments: Sequence[str],
    files: Mapping[str, bytes],
    *,
    environment: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,
    most: int = _MAX_OUTPUT_BYTES,
) -> Invocation:
    """Run `program`; `{name}` in an argument is the path, `{name:fd}` the number, of a file.

    `files` gives the contents by name; `{status}` and `{status:fd}` are always there. Raises
    OpenPGPUnavailable when the program is missing, does not start, writes more than `most` bytes,
    or is still running after `timeout` seconds (then its whole process group is killed).
    """
    path = find_program(program)
    with ExitStack() as stack:
        shared = {name: open_file(stack, content) for name, content in files.items()}
        shared["status"] = open_file(stack)
        output = open_file(stack)
        child = start(
            [path, *arguments], shared, stdout=output.descriptor, environment=environment or {}
        )
        exit_code = finish(child, program, timeout)
        return Invocation(exit_code, shared["status"].read(), output.read(most))


def open_file(stack: ExitStack, content: bytes = b"") -> GatewayFile:
    """A new file with this content, gone with the stack."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("countersign")
        stack.callback(os.close, descriptor)
        made = GatewayFile(descriptor, f"/dev/fd/{descriptor}")
    else:
        file = stack.enter_context(tempfile.NamedTemporaryFile(prefix="cs-"))  # noqa: SIM115
        made = GatewayFile(file.fileno(), file.name)
    made.write(content)
    return made


def _fill(argument: str, files: Mapping[str, GatewayFile]) -> str:
    for name, file in files.items():
        if argument == f"{{{name}}}":
            return file.path
        if argument == f"{{{name}:fd}}":
            return str(file.descriptor)
    return argument


def start(
    argv: Sequence[str],
    files: Mapping[str, GatewayFile],
    *,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
    environment: Mapping[str, str],
) -> subprocess.Popen[bytes]:
    """Start GnuPG in a session of its own, with these files and nothing else of ours."""
    try:
        return subprocess.Popen(
            [_fill(argument, files) for argument in argv],
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
            pass_fds=tuple(file.descriptor for file in files.values()),
            env={**_ENVIRONMENT, **environment},
            start_new_session=True,
            bufsize=0,
        )
    except OSError as error:
        raise OpenPGPUnavailable(f"{argv[0]} does not start: {error.strerror}") from error


def finish(child: subprocess.Popen[bytes], program: str, timeout: float) -> int:
    """Wait, then kill whatever is left of the group, then reap."""
    try:
        ended = wait_for_exit(child.pid, timeout)
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    if not ended:
        raise OpenPGPUnavailable(f"{program} did not end within {timeout:g} seconds")
    return child.returncode

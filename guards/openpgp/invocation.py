"""One bounded run of a GnuPG program, on files that have no name.

Keyring, signature, text and status output travel as anonymous files in memory (`memfd`, where the
system has it), reached as /dev/fd/N: there is no temporary home to fill, to leak, to clean up, or
to survive a kill, and no socket path to be too long (DES-003).
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
_MAX_STATUS_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Invocation:
    """What one run gave back: `exit_code` is negative for a signal, as in `subprocess`."""

    exit_code: int
    status: bytes
    output: bytes


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
) -> Invocation:
    """Run `program`; `{name}` in an argument is the path, `{name:fd}` the number, of a file.

    `files` gives the contents by name; `{status}` and `{status:fd}` are always there. Raises
    OpenPGPUnavailable when the program is missing, does not start, or is still running after
    `timeout` seconds (then its whole process group is killed).
    """
    path = find_program(program)
    with ExitStack() as stack:
        descriptors = {name: _open(stack, content) for name, content in files.items()}
        descriptors["status"] = _open(stack)
        output = _open(stack)
        argv = [path, *(_fill(argument, descriptors) for argument in arguments)]
        child = _start(argv, tuple(descriptors.values()), output, environment or {})
        exit_code = _finish(child, program, timeout)
        return Invocation(exit_code, _content(descriptors["status"]), _content(output))


def _open(stack: ExitStack, content: bytes = b"") -> int:
    """An anonymous file with this content, closed with the stack."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("countersign")
        stack.callback(os.close, descriptor)
    else:
        file = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
        descriptor = file.fileno()
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _fill(argument: str, descriptors: Mapping[str, int]) -> str:
    for name, descriptor in descriptors.items():
        if argument == f"{{{name}}}":
            return f"/dev/fd/{descriptor}"
        if argument == f"{{{name}:fd}}":
            return str(descriptor)
    return argument


def _start(
    argv: Sequence[str], descriptors: tuple[int, ...], output: int, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.DEVNULL,
            pass_fds=descriptors,
            env={**_ENVIRONMENT, **environment},
            start_new_session=True,
        )
    except OSError as error:
        raise OpenPGPUnavailable(f"{argv[0]} does not start: {error.strerror}") from error


def _finish(child: subprocess.Popen[bytes], program: str, timeout: float) -> int:
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


def _content(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, min(size, _MAX_STATUS_BYTES), 0)

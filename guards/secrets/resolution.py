"""References to secrets: one function per place a secret may be in (DES-008, DES-017)."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from shutil import which

from django.conf import settings

from guards import process
from guards.exceptions import CountersignError, InvalidInput, SecretUnavailable
from guards.secrets.references import parse
from guards.secrets.values import Secret

#: Seconds that a password manager or a command may take.
TIMEOUT = 5.0

_MAX_BYTES = 64 * 1024
#: What password managers need of our environment, and nothing else of it.
_PASSED_ON = (
    "PATH", "HOME", "USER", "LANG", "GNUPGHOME", "PASSWORD_STORE_DIR", "XDG_RUNTIME_DIR",
    "XDG_DATA_HOME", "XDG_CONFIG_HOME", "DBUS_SESSION_BUS_ADDRESS",
)  # fmt: skip


class _Absent(Exception):
    """This place does not hold the secret; the walk of a bare name goes on."""


def resolve(reference: str) -> Secret:
    """The secret that a reference stands for.

    SecretUnavailable says why not, naming the place and never the secret.
    """
    try:
        parsed = parse(reference)
    except InvalidInput as error:
        raise SecretUnavailable(error.detail) from None
    try:
        text = _PLACES[parsed.scheme](parsed.rest) if parsed.scheme else _walk(parsed.rest)
    except _Absent as absence:
        raise SecretUnavailable(str(absence)) from None
    if not text:
        raise SecretUnavailable(f"the secret {reference.partition(':')[0]}:… is empty")
    return Secret(text)


def _walk(name: str) -> str:
    """pass, then secret-tool, then SECRETS_DIR, then the environment; the first that has it.

    A file that is there with the wrong mode is an error, not a reason to go on.
    """
    variable = "COUNTERSIGN_" + name.upper().replace("-", "_").replace(".", "_")
    places: tuple[Callable[[], str], ...] = (
        lambda: _from_pass(f"countersign/{name}"),
        lambda: _from_secret_tool(f"countersign/{name}"),
        lambda: _from_file(str(Path(settings.SECRETS_DIR) / name)),
        lambda: _from_environment(variable),
    )
    reasons = []
    for place in places:
        try:
            found = place()
        except _Absent as absence:
            reasons.append(str(absence))
            continue
        if found:
            return found
    raise _Absent(f"the secret {name!r} is nowhere: " + "; ".join(reasons))


def _from_environment(name: str) -> str:
    text = os.environ.get(name)
    if text is None:
        raise _Absent(f"{name} is not set in the environment")
    return text


def _from_file(path: str) -> str:
    """A regular file, ours, and nobody else's to read; looked at after it is open."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise _Absent(f"there is no file {path}") from None
    except OSError as error:
        raise SecretUnavailable(f"{path} cannot be opened: {error.strerror}") from error
    try:
        _refuse_loose(path, os.fstat(descriptor))
        content = os.read(descriptor, _MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    return _text(content, path)


def _refuse_loose(path: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise SecretUnavailable(f"{path} is not a regular file")
    mode = stat.S_IMODE(status.st_mode)
    if mode not in (0o600, 0o400):
        raise SecretUnavailable(f"{path} has mode {mode:04o}, not 0600: run `chmod 600 {path}`")
    if status.st_uid != os.geteuid():
        raise SecretUnavailable(f"{path} belongs to another user")


def _text(content: bytes, source: str) -> str:
    """The text without the line end that editors add."""
    if len(content) > _MAX_BYTES:
        raise SecretUnavailable(f"{source} gives more than {_MAX_BYTES} bytes")
    try:
        return content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise SecretUnavailable(f"{source} does not give text") from None


def _from_command(line: str) -> str:
    try:
        argv = shlex.split(line)
    except ValueError as error:
        raise SecretUnavailable(f"cmd: cannot be split into arguments: {error}") from None
    return _text(_ask(argv, f"cmd:{argv[0]}"), f"cmd:{argv[0]}")


def _from_pass(path: str) -> str:
    """The first line of an entry, which is where `pass` keeps the password."""
    if which("pass") is None:
        raise _Absent("pass is not installed")
    return _text(_ask(["pass", "show", path], f"pass:{path}"), "pass").partition("\n")[0]


def _from_secret_tool(pair: str) -> str:
    service, _, account = pair.partition("/")
    if which("secret-tool") is None:
        raise _Absent("secret-tool is not installed")
    argv = ["secret-tool", "lookup", "service", service, "account", account]
    return _text(_ask(argv, f"secret-tool:{pair}"), "secret-tool")


def _from_keyring(pair: str) -> str:
    """Python's keyring, where it is installed, in a process of its own: it may hang on a prompt."""
    service, _, account = pair.partition("/")
    if find_spec("keyring") is None:
        raise _Absent("the package `keyring` is not installed")
    argv = [sys.executable, "-m", "keyring", "get", service, account]
    return _text(_ask(argv, f"keyring:{pair}"), "keyring")


def _ask(argv: Sequence[str], source: str) -> bytes:
    """Standard output of a bounded child that succeeded; what it printed is never repeated."""
    env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    try:
        done = process.run(
            argv,
            timeout=TIMEOUT,
            env=env,
            max_output=_MAX_BYTES,
            vouched=True,
            has_daemons=True,  # an agent that others may be using by now
        )
    except CountersignError as error:
        raise _Absent(f"{source}: {error.detail}") from None
    if done.timed_out:
        raise _Absent(f"{source} gave no answer within {TIMEOUT:g} seconds")
    if not done.succeeded:
        raise _Absent(f"{source} failed with exit code {done.exit_code}")
    return done.stdout


_PLACES: dict[str, Callable[[str], str]] = {
    "env": _from_environment,
    "file": _from_file,
    "cmd": _from_command,
    "pass": _from_pass,
    "secret-tool": _from_secret_tool,
    "keyring": _from_keyring,
}

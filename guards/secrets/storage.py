"""Writing a secret that was given once: a 0600 file, and the reference to it."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from django.conf import settings

from guards.exceptions import InvalidInput
from guards.secrets.references import checked_name, parse


def store(name: str, value: str) -> str:
    """Write `value` to SECRETS_DIR/`name` (mode 0600), replacing an older one whole; its reference.

    InvalidInput for a name that is not one, or an empty value.
    """
    if not value.strip("\r\n"):
        raise InvalidInput("an empty secret is not stored", field="value")
    path = Path(settings.SECRETS_DIR) / checked_name(name)
    _make_folder(path.parent)
    staged = path.with_name(f".{name}.{secrets.token_hex(8)}")
    try:
        _write_new(staged, value)
        staged.replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            staged.unlink()
        raise
    return f"file:{path}"


def create_file(reference: str, value: str) -> Path | None:
    """Write a new 0600 file where a `file:` reference points and nothing is yet; its path.

    None for other references and where there is a file already (it is never overwritten). For keys
    that the installation makes for itself at its first start.
    """
    parsed = parse(reference)
    if parsed.scheme != "file":
        return None
    path = Path(parsed.rest)
    _make_folder(path.parent)
    staged = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    _write_new(staged, value)
    try:
        os.link(staged, path)  # whole or not at all, and only if it is not there
    except FileExistsError:
        return None
    finally:
        staged.unlink()
    return path


def replace_file(reference: str, value: str) -> Path:
    """Write the 0600 file of a `file:` reference anew, whole or not at all; its path.

    For keys that the installation keeps for itself. InvalidInput for other references.
    """
    parsed = parse(reference)
    if parsed.scheme != "file":
        raise InvalidInput("only a file is written anew", field="reference")
    path = Path(parsed.rest)
    staged = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        _write_new(staged, value)
        staged.replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            staged.unlink()
        raise
    _sync(path.parent)
    return path


def _sync(folder: Path) -> None:
    """A name that was given survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _write_new(path: Path, value: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(value.encode())
        file.flush()
        os.fsync(file.fileno())

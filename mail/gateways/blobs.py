"""The raw store: bytes under their SHA-256 in the `mail` storage, durable before a row names them.

`docs/durability.md` says what durable means. A batch is written as a whole and synced once.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from django.core.files.base import ContentFile
from django.core.files.storage import FileSystemStorage, Storage, storages

from mail.exceptions import RawMissing

#: Up to this many new files are synced one by one; above it the file system is synced as a whole.
_FEW = 8


def name_of(sha256: str) -> str:
    """Where the bytes of that digest lie: 256 directories, as git has them."""
    return f"{sha256[:2]}/{sha256}"


def put_all(raws: Mapping[str, bytes]) -> None:
    """Store bytes by digest; on return they survive a power cut. Never inside a transaction."""
    storage = storages["mail"]
    if isinstance(storage, FileSystemStorage):
        _put_files(storage, raws)
    else:
        _put_objects(storage, raws)


def get(sha256: str) -> bytes:
    """The bytes of that digest; RawMissing where they are gone or not what was stored."""
    storage = storages["mail"]
    try:
        with storage.open(name_of(sha256), "rb") as stored:
            raw: bytes = stored.read()
    except OSError as error:
        raise RawMissing(f"raw message {sha256[:12]}… cannot be read: {error}") from error
    if hashlib.sha256(raw).hexdigest() != sha256:
        raise RawMissing(f"raw message {sha256[:12]}… is not what was stored")
    return raw


def _put_objects(storage: Storage, raws: Mapping[str, bytes]) -> None:
    for sha256, raw in raws.items():
        if not storage.exists(name_of(sha256)):
            storage.save(name_of(sha256), ContentFile(raw))


def _put_files(storage: FileSystemStorage, raws: Mapping[str, bytes]) -> None:
    written: list[Path] = []
    changed: set[Path] = set()
    for sha256, raw in raws.items():
        path = Path(storage.path(name_of(sha256)))
        if not _holds(path, raw):
            changed |= _make_directory(storage, path.parent)
            _write(storage, path, raw)
            written.append(path)
    _sync(written, changed)


def _holds(path: Path, raw: bytes) -> bool:
    """Whether exactly these bytes are there already: a name alone proves nothing after a crash."""
    try:
        return path.stat().st_size == len(raw) and path.read_bytes() == raw
    except OSError:
        return False


def _make_directory(storage: FileSystemStorage, directory: Path) -> set[Path]:
    """Make it and the root above it where they are missing; the directories to sync for it."""
    mode = storage.directory_permissions_mode or 0o700
    changed = {directory}
    for missing in (directory.parent, directory):
        if not missing.is_dir():
            missing.mkdir(mode=mode, parents=True, exist_ok=True)
            changed.add(missing.parent)
    return changed


def _write(storage: FileSystemStorage, path: Path, raw: bytes) -> None:
    """Write beside the place and rename, so that the name never shows half a message."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(
        beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, storage.file_permissions_mode or 0o600
    )
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(raw)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)  # on a full disk each try would leave half a message
        raise


def _sync(written: Sequence[Path], changed: Iterable[Path]) -> None:
    """The bytes first, then the names that lead to them."""
    if len(written) > _FEW and _sync_file_system(written[0].parent):
        return
    for path in (*written, *changed):
        _fsync(path)


def _sync_file_system(directory: Path) -> bool:
    """One `syncfs` for all of them; False where the platform has none."""
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        return False
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        return bool(syncfs(descriptor) == 0)
    finally:
        os.close(descriptor)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

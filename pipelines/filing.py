"""A pipeline's own directory on disk: written, looked at, read and removed without following links.

Whatever a stage has left there is hostile: links out of it, pipes that block, sparse files, names
that are paths, trees deeper than any path. So every step goes through a descriptor of the
directory, one plain segment at a time, and bytes are taken from the very file that was looked at.
Nothing here touches the database. FilesRefused names the rule.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from django.conf import settings

from pipelines.file_names import MAX_DEPTH, refusal, segments
from pipelines.types import FileRule

#: The largest file, and the most that a directory may hold in all, in bytes (DES-032).
MAX_FILE_BYTES = 25_000_000
MAX_DIRECTORY_BYTES = 100_000_000
#: Entries of any kind that a directory may hold in all.
MAX_ENTRIES = 10_000

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: Linux opens a directory as a place only, whatever its mode.
_PLACE = getattr(os, "O_PATH", os.O_RDONLY)
_CHUNK = 1 << 20
_GONE = ".gone"


@dataclass(frozen=True, slots=True)
class Content:
    """What was read of a file: how many bytes, and their SHA-256."""

    size: int
    sha256: str


def root_of_all() -> Path:
    """Where every pipeline has its directory; `settings.PIPELINES_DIR` may itself be a link."""
    return Path(os.path.realpath(settings.PIPELINES_DIR))  # several times a pipeline: half the time


def directory_of(pipeline_id: UUID) -> Path:
    """Where a pipeline's files lie, and where its stages leave theirs."""
    return root_of_all() / str(pipeline_id)


def make(directory: Path) -> bool:
    """Make the directory for us alone, with the one above it; False when it was there already."""
    try:
        try:
            directory.mkdir(mode=0o700)
        except FileNotFoundError:
            directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory.mkdir(mode=0o700)
    except FileExistsError:
        return False
    except OSError as error:
        raise refusal(f"the directory cannot be made: {error.strerror}", FileRule.DISK) from error
    return True


@contextmanager
def opened(directory: Path) -> Iterator[int]:
    """A descriptor of the directory itself; FilesRefused where it is gone, a link, or not ours."""
    try:
        descriptor = os.open(directory, _DIRECTORY)
    except OSError as error:
        raise refusal("the pipeline's directory is not there", FileRule.DIRECTORY_GONE) from error
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise refusal(
                "the pipeline's directory belongs to somebody else", FileRule.DIRECTORY_FOREIGN
            )
        yield descriptor
    except OSError as error:
        raise refusal(f"the directory cannot be used: {error.strerror}", FileRule.DISK) from error
    finally:
        os.close(descriptor)


def write(root: int, name: str, content: bytes) -> None:
    """Write a new file of one plain name; FilesRefused where there is one, or no room."""
    (segment,) = segments(name)
    try:
        descriptor = os.open(segment, _NEW_FILE, 0o600, dir_fd=root)
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
    except OSError as error:
        raise refusal(f"{name!r} cannot be written: {error.strerror}", FileRule.DISK) from error


@contextmanager
def opened_file(root: int, path: str) -> Iterator[int]:
    """A descriptor of one regular file below the directory, no link followed on the way.

    FilesRefused for what is missing, no regular file, known by another name too, or too large.
    """
    *above, name = segments(path)
    with _opened_below(root, above, path) as parent:
        try:
            descriptor = os.open(name, _FILE, dir_fd=parent)
        except OSError as error:
            raise _not_a_file(path, error) from error
    try:
        _check_file(os.fstat(descriptor), path)
        yield descriptor
    finally:
        os.close(descriptor)


def look_at(root: int, path: str) -> int:
    """The size of a file that could be read now, in bytes."""
    with opened_file(root, path) as descriptor:
        return os.fstat(descriptor).st_size


def digest(root: int, path: str) -> Content:
    """Size and SHA-256 of exactly the bytes that stand in a file."""
    running, size = hashlib.sha256(), 0
    with opened_file(root, path) as descriptor:
        for chunk in _chunks(descriptor, path):
            running.update(chunk)
            size += len(chunk)
    return Content(size, running.hexdigest())


def read(root: int, path: str, *, sha256: str) -> bytes:
    """The bytes of a file, if they are still those of that digest: FilesRefused otherwise."""
    with opened_file(root, path) as descriptor:
        content = b"".join(_chunks(descriptor, path))
    if hashlib.sha256(content).hexdigest() != sha256:
        raise refusal(f"{path!r} was changed after it was handed on", FileRule.FILE_CHANGED)
    return content


def measure(root: int) -> int:
    """Bytes of everything below the directory, each name counted, sparse files by their length.

    FilesRefused above MAX_DIRECTORY_BYTES, and for more or deeper entries than anybody needs.
    """
    total = 0
    for entries, status in enumerate(_walk(root), start=1):
        total += status.st_size if not stat.S_ISDIR(status.st_mode) else 0
        if entries > MAX_ENTRIES:
            raise refusal(
                f"the directory holds over {MAX_ENTRIES} entries", FileRule.TOO_MANY_ENTRIES
            )
        if total > MAX_DIRECTORY_BYTES:
            raise refusal(
                f"the directory holds over {MAX_DIRECTORY_BYTES} bytes",
                FileRule.DIRECTORY_TOO_LARGE,
            )
    return total


def remove(directory: Path) -> int | None:
    """Remove a directory and all below it; bytes that it held, or None where there was none.

    It gets another name first, so that nobody takes one that is half gone for a whole one. An empty
    one goes in one step.
    """
    try:
        directory.rmdir()
    except FileNotFoundError:
        return None
    except OSError:
        pass  # it holds something, or is none
    else:
        return 0
    gone = directory
    if not is_leftover(directory.name):
        gone = directory.with_name(f".{directory.name}.{secrets.token_hex(4)}{_GONE}")
        try:
            directory.rename(gone)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise refusal(
                f"the directory cannot be removed: {error.strerror}", FileRule.DISK
            ) from error
    return empty(gone, and_itself=True)


def empty(directory: Path, *, and_itself: bool = False) -> int:
    """Remove all that lies in a directory, however deep; bytes that it held."""
    with opened(directory) as root:
        freed = _remove_all(root)
        if and_itself:
            directory.rmdir()
    return freed


def is_leftover(name: str) -> bool:
    """Whether a name is that of a directory whose removal was cut off."""
    return name.startswith(".") and name.endswith(_GONE)


@contextmanager
def _opened_below(root: int, above: list[str], path: str) -> Iterator[int]:
    """A descriptor of the directory that holds the last segment."""
    current = os.dup(root)
    try:
        for segment in above:
            try:
                below = os.open(segment, _DIRECTORY, dir_fd=current)
            except OSError as error:
                raise _not_a_file(path, error) from error
            os.close(current)
            current = below
        yield current
    finally:
        os.close(current)


def _not_a_file(path: str, error: OSError) -> Exception:
    if isinstance(error, FileNotFoundError):
        return refusal(f"{path!r} does not exist", FileRule.FILE_MISSING)
    return refusal(f"{path!r} is no regular file in the directory", FileRule.FILE_NOT_REGULAR)


def _check_file(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise refusal(f"{path!r} is no regular file in the directory", FileRule.FILE_NOT_REGULAR)
    if status.st_nlink != 1:
        raise refusal(f"{path!r} has another name as well (a hard link)", FileRule.FILE_LINKED)
    if status.st_size > MAX_FILE_BYTES:
        raise _too_large(path)


def _too_large(path: str) -> Exception:
    return refusal(f"{path!r} is larger than {MAX_FILE_BYTES} bytes", FileRule.FILE_TOO_LARGE)


def _chunks(descriptor: int, path: str) -> Iterator[bytes]:
    """What can be read, up to the cap: a file that grows meanwhile is refused, not cut."""
    read_so_far = 0
    while chunk := os.read(descriptor, _CHUNK):
        read_so_far += len(chunk)
        if read_so_far > MAX_FILE_BYTES:
            raise _too_large(path)
        yield chunk


def _walk(root: int) -> Iterator[os.stat_result]:
    """Every entry below a directory by its own status, links not followed."""
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        place = waiting.pop()
        with _opened_below(root, list(place), "/".join(place)) as here, os.scandir(here) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    waiting.append((*place, entry.name))
                yield status
        if len(place) >= MAX_DEPTH:
            raise refusal(
                f"the directory is deeper than {MAX_DEPTH} levels", FileRule.PATH_TOO_DEEP
            )


def _remove_all(root: int) -> int:
    """Remove everything below a directory: what lies deep is lifted up, so no path grows long."""
    freed, directories = _unlink_files(root)
    while directories:
        lifted: list[str] = []
        for name in directories:
            with _unlocked(root, name) as inner:
                more, below = _unlink_files(inner)
                for one in below:
                    with _unlocked(inner, one):
                        pass  # a directory moves only where it may be written
                    lifted.append(secrets.token_hex(8))
                    os.rename(one, lifted[-1], src_dir_fd=inner, dst_dir_fd=root)
            os.rmdir(name, dir_fd=root)
            freed += more
        directories = lifted
    return freed


def _unlink_files(directory: int) -> tuple[int, list[str]]:
    """Unlink all but directories: the bytes freed, and the directories' names."""
    freed, directories = 0, []
    with os.scandir(directory) as entries:
        found = list(entries)
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            directories.append(entry.name)
        else:
            with suppress(FileNotFoundError):
                freed += os.stat(entry.name, dir_fd=directory, follow_symlinks=False).st_size
                os.unlink(entry.name, dir_fd=directory)
    return freed, directories


@contextmanager
def _unlocked(directory: int, name: str) -> Iterator[int]:
    """A descriptor of a directory that may be listed and changed, whatever mode it was given."""
    place = os.open(name, _PLACE | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
    try:
        if stat.S_IMODE(os.fstat(place).st_mode) & 0o700 != 0o700:
            os.chmod(f"/proc/self/fd/{place}", 0o700)  # noqa: PTH101 - a path would be followed
        descriptor = os.open(".", _DIRECTORY, dir_fd=place)
    finally:
        os.close(place)
    try:
        yield descriptor
    finally:
        os.close(descriptor)

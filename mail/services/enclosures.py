"""Files that leave with a message: stored under their digest before the draft names them.

An approval binds each file's name, type, size and digest; what is composed is read back from the
store, which proves the digest again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from guards.exceptions import InvalidInput
from mail import parts
from mail.exceptions import FilesNotKept
from mail.gateways import blobs
from mail.models import Outbound, OutboundFile
from mail.types import Enclosure

#: What one message carries at most: files, and bytes of all of them before their base64.
MAX_FILES = 100
MAX_BYTES = 25_000_000


def keep(files: Sequence[Enclosure]) -> list[OutboundFile]:
    """Store the bytes, and give back rows for them that are not saved yet.

    Outside of any transaction. InvalidInput names what no message can carry.
    """
    if len(files) > MAX_FILES:
        raise InvalidInput(
            f"a message carries at most {MAX_FILES} files, not {len(files)}",
            field="files",
            rule="too-many-files",
        )
    total = sum(len(file.content) for file in files)
    if total > MAX_BYTES:
        raise InvalidInput(
            f"a message carries at most {MAX_BYTES} bytes of files, not {total}",
            field="files",
            rule="files-too-large",
        )
    for file in files:
        parts.file_part(Enclosure(file.name, file.type, b""))  # its name and type can travel
    if files:
        _store({hashlib.sha256(file.content).hexdigest(): file.content for file in files})
    return [_row(position, file) for position, file in enumerate(files, start=1)]


def write(outbound: Outbound, rows: Sequence[OutboundFile]) -> None:
    """Make these the files of a draft, in place of any it had; in the caller's transaction."""
    OutboundFile.objects.filter(outbound=outbound).delete()
    for row in rows:
        row.outbound = outbound
    OutboundFile.objects.bulk_create(rows)


def opened(outbound: Outbound) -> list[Enclosure]:
    """The files of a message with their bytes; RawMissing where the store has others or none."""
    return [Enclosure(row.name, row.type, content_of(row)) for row in outbound.files.all()]


def content_of(row: OutboundFile) -> bytes:
    """The bytes of one file; RawMissing where the store has others or none."""
    return blobs.get(row.sha256)


def bound(outbound: Outbound) -> list[dict[str, object]]:
    """What an approval binds of a message's files, and what a person reads; database only."""
    rows = outbound.files.values("name", "type", "size", "sha256")
    return [dict(row) for row in rows]


def _store(contents: Mapping[str, bytes]) -> None:
    try:
        blobs.put_all(contents)
    except OSError as error:
        raise FilesNotKept(f"the store took no files: {error}", field="files") from error


def _row(position: int, file: Enclosure) -> OutboundFile:
    return OutboundFile(
        position=position,
        name=file.name,
        type=file.type,
        size=len(file.content),
        sha256=hashlib.sha256(file.content).hexdigest(),
    )

"""The files of a pipeline: its own directory, from the message's attachments to its end (DES-032).

The executor calls `prepare` before the first work stage, `encoded` before and `after` behind each
one. In the pipe a path is relative to the directory, for a runner it is absolute; both ways it is
looked at again. Each file is in the pipe with the SHA-256 of the bytes that were looked at, which
runners do not see: whoever takes the bytes later takes those or none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import structlog
from django.utils import timezone

from guards.exceptions import CountersignError
from mail import selectors as mail
from mail.services import enclosures as mail_files
from mail.types import Attachment, Enclosure
from pipelines import file_names, filing, pipes
from pipelines.file_names import refusal
from pipelines.models import Pipeline
from pipelines.services.rows import Answer, Message
from pipelines.types import CommandSpec, FileRule

log = structlog.get_logger(__name__)

#: Files that a pipe may hold.
MAX_FILES = 1000

ATTACHMENT = "attachment"
_SHOWN = ("name", "path", "mime_type", "size", "origin")


def directory_of(pipeline_id: UUID) -> Path:
    """Where a pipeline's files lie, and where its stages leave theirs."""
    return filing.directory_of(pipeline_id)


def prepare(*, pipeline: Pipeline) -> dict[str, Any]:
    """Make the directory and put the message's attachments there; what the row has to say of it.

    That goes on record with the claim of the first stage, before which nobody begins; `pipeline`
    says it at once, and its pipe names the files. Once per pipeline: what a try that was cut off
    has left is removed first, and a directory that got lost later is filled again as far as the
    mail has it. FilesRefused above the caps, or where a file of an earlier stage is gone.
    """
    directory = directory_of(pipeline.pk)
    is_new = filing.make(directory)
    if pipeline.files_at is not None:
        if is_new:
            _restore(pipeline, directory)
        elif pipeline.resumptions:
            _refuse_changed(pipeline.pipe["files"], directory)
        return {}
    if not is_new:
        filing.empty(directory)
    pipeline.files_at = timezone.now()
    filled: dict[str, Any] = {"files_at": pipeline.files_at}
    entries = _fill(pipeline, directory)
    if entries != pipeline.pipe.get("files"):
        pipeline.pipe = filled["pipe"] = {**pipeline.pipe, "files": entries}
    return filled


def ask_for_attachments(message: Message, message_ids: Collection[int]) -> Answer[set[int]]:
    """Which of these mails bring no attachment, for `begins_empty`; there is at least one."""
    return message.ask(mail.parts_of(message_ids), mail.without_attachments_in)


def begins_empty(pipeline: Pipeline, without: Collection[int]) -> bool:
    """Whether its directory was never filled, and there is nothing to fill it with."""
    never = pipeline.files_at is None and pipeline.pipe.get("files") == []
    return never and pipeline.message_id in without


def make_empty(pipeline_id: UUID) -> Path:
    """Its directory, with nothing in it: for one that begins empty, once that is on record."""
    directory = directory_of(pipeline_id)
    make_empty_at(directory)
    return directory


def make_empty_at(directory: Path) -> None:
    """The same, where it is known which one that is."""
    if not filing.make(directory):
        filing.empty(directory)


def _fill(pipeline: Pipeline, directory: Path) -> list[dict[str, Any]]:
    """The message's attachments, now in the directory, as the pipe names them."""
    if mail.has_no_attachments(pipeline.message_id):
        return []
    attachments = mail.attachments(pipeline.message)
    entries = [_entry_of(one) for one in attachments]
    _check_caps(attachments)
    _write(directory, zip(entries, attachments, strict=True))
    return entries


def handed(pipe: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """The pipe as a runner gets it: absolute paths, after another look at each file.

    FilesRefused where a file is gone, is no plain file of the directory, or has another size.
    """
    entries = pipe["files"]
    if not entries:
        return {**pipe, "files": []}
    with filing.opened(directory) as root:
        for entry in entries:
            if filing.look_at(root, entry["path"]) != entry["size"]:
                raise refusal(
                    f"{entry['path']!r} was changed after it was handed on", FileRule.FILE_CHANGED
                )
    return {**pipe, "files": [_absolute(entry, directory) for entry in entries]}


def encoded(pipe: Mapping[str, Any], directory: Path) -> bytes:
    """That pipe as JSON, the way a child reads it on standard input."""
    return pipes.encode(handed(pipe, directory))


def after(
    spec: CommandSpec,
    pipe: dict[str, Any],
    output: bytes,
    directory: Path,
    position: int,
) -> dict[str, Any]:
    """The pipe once the stage at that position has written its output.

    The very same pipe comes back where the command passes it through. OutputInvalid for a form that
    the command does not declare, FilesRefused for a file that may not be where it is said to be.
    """
    written = pipes.written(spec, output)
    with filing.opened(directory) as root:
        filing.measure(root)  # whatever it returns, a stage has left something there
    if written is None:
        return pipe
    if not spec.files:
        return {"data": written.data, "files": []}
    if not written.said_files:
        log.warning("a command that returns files named none: they end here", command=spec.name)
    if len(written.files) > MAX_FILES:
        raise refusal(f"a pipe holds at most {MAX_FILES} files", FileRule.TOO_MANY_FILES)
    with filing.opened(directory) as root:
        earlier = {entry["path"]: entry for entry in pipe["files"]}
        entries = [_returned(one, root, directory, earlier, position) for one in written.files]
    _refuse_twice(entries)
    return {"data": written.data, "files": entries}


def enclosures(pipe: Mapping[str, Any], directory: Path) -> list[Enclosure]:
    """The pipe's files to go with a mail: exactly the bytes that were looked at, or FilesRefused.

    A refusal that is about a file has `file_names.FIELD` as its field.
    """
    entries = pipe["files"]
    if not entries:
        return []
    _check_for_mail(entries)
    with filing.opened(directory) as root:
        return [
            Enclosure(
                entry["name"],
                entry["mime_type"],
                filing.read(root, entry["path"], sha256=entry["sha256"]),
            )
            for entry in entries
        ]


def _check_for_mail(entries: Sequence[Mapping[str, Any]]) -> None:
    """Refuse what no mail could carry before anything of it is read into memory."""
    total = sum(entry["size"] for entry in entries)
    if total > mail_files.MAX_BYTES:
        raise refusal(f"a mail carries no {total} bytes of files", FileRule.FILES_TOO_LARGE)


def _entry_of(attachment: Attachment) -> dict[str, Any]:
    media_type = file_names.media_type(attachment.type, attachment.name)
    name, path = file_names.of_attachment(attachment.name, media_type, attachment.index)
    return {
        "name": name,
        "path": path,
        "mime_type": media_type,
        "size": len(attachment.content),
        "origin": ATTACHMENT,
        "sha256": hashlib.sha256(attachment.content).hexdigest(),
    }


def _check_caps(attachments: Iterable[Attachment]) -> None:
    sizes = [len(one.content) for one in attachments]
    if any(size > filing.MAX_FILE_BYTES for size in sizes):
        raise refusal(
            f"an attachment is over {filing.MAX_FILE_BYTES} bytes", FileRule.FILE_TOO_LARGE
        )
    if sum(sizes) > filing.MAX_DIRECTORY_BYTES:
        raise refusal(
            f"the attachments are over {filing.MAX_DIRECTORY_BYTES} bytes",
            FileRule.DIRECTORY_TOO_LARGE,
        )
    if len(sizes) > MAX_FILES:
        raise refusal(f"a message brings at most {MAX_FILES} files", FileRule.TOO_MANY_FILES)


def _write(directory: Path, files: Iterable[tuple[Mapping[str, Any], Attachment]]) -> None:
    with filing.opened(directory) as root:
        for entry, attachment in files:
            filing.write(root, entry["path"], attachment.content)


def _restore(pipeline: Pipeline, directory: Path) -> None:
    """Fill a directory that was lost: the mail still has its attachments, and nothing else has."""
    wanted = pipeline.pipe["files"]
    if not wanted:
        return
    found = {_entry_of(one)["path"]: one for one in mail.attachments(pipeline.message)}
    try:
        for entry in wanted:
            if entry["origin"] != ATTACHMENT or entry["path"] not in found:
                raise refusal(
                    f"{entry['path']!r} is gone: an earlier stage made it", FileRule.FILE_MISSING
                )
        _write(directory, [(entry, found[entry["path"]]) for entry in wanted])
    except CountersignError:
        filing.remove(directory)  # half of it must not pass for the whole next time
        raise


def _refuse_changed(entries: Iterable[Mapping[str, Any]], directory: Path) -> None:
    """A stage that was cut off may have written over what it was given: nothing goes on from it."""
    with filing.opened(directory) as root:
        for entry in entries:
            if filing.digest(root, entry["path"]).sha256 != entry["sha256"]:
                raise refusal(
                    f"{entry['path']!r} was changed by the run before", FileRule.FILE_CHANGED
                )


def _absolute(entry: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    shown = {key: entry[key] for key in _SHOWN}
    return {**shown, "path": f"{directory}/{entry['path']}"}


def _returned(
    claimed: Mapping[str, Any],
    root: int,
    directory: Path,
    earlier: Mapping[str, Mapping[str, Any]],
    position: int,
) -> dict[str, Any]:
    """One file as a stage named it, looked at: its size and its origin are ours to say."""
    path = claimed.get("path")
    if not isinstance(path, str):
        raise refusal("each file has its path, a text", FileRule.PATH_MISSING)
    path = file_names.relative(path, directory)
    found = filing.digest(root, path)
    before = earlier.get(path)
    if before is not None and before["sha256"] == found.sha256:
        origin = before["origin"]
    else:
        origin = f"stage-{position}"
    given = claimed.get("name")
    name = file_names.shown(given) if isinstance(given, str) else ""
    return {
        "name": name or file_names.shown(path.rpartition("/")[2]) or "file",
        "path": path,
        "mime_type": file_names.media_type(claimed.get("mime_type"), path),
        "size": found.size,
        "origin": origin,
        "sha256": found.sha256,
    }


def _refuse_twice(entries: Iterable[Mapping[str, Any]]) -> None:
    seen: set[str] = set()
    for entry in entries:
        if entry["path"] in seen:
            raise refusal(f"{entry['path']!r} is named twice", FileRule.FILE_TWICE)
        seen.add(entry["path"])

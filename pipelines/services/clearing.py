"""How the directories of pipelines go away: at their end, and by a sweep (DES-032).

The row decides. A pipeline that is due, runs or waits keeps its directory; so does one that was
interrupted and could go on, for a while. What has ended keeps it for the retention period, and a
directory that belongs to no pipeline is an orphan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import structlog
from django.conf import settings
from django.utils import timezone

from pipelines import filing
from pipelines.exceptions import FilesRefused
from pipelines.models import Command, Pipeline
from pipelines.services import resuming
from pipelines.services.intake import REPLY

log = structlog.get_logger(__name__)

#: How long the directory of a pipeline that could go on is kept after its interruption.
KEPT_FOR_RESUMPTION = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep removed: directories, and the bytes they held."""

    directories: int = 0
    bytes: int = 0


def let_go(*, pipeline_id: UUID, status: str = "") -> bool:
    """Remove a pipeline's directory where its row allows that now; False where it stays.

    `status` is how it has just ended, where the caller knows: one that completed never goes on.
    """
    if status == Pipeline.Status.COMPLETED and not _retention():
        return _removed(filing.directory_of(pipeline_id)) is not None
    pipeline = Pipeline.objects.filter(pk=pipeline_id).first()
    if pipeline is None or not _is_over(pipeline, timezone.now()):
        return False
    return _removed(filing.directory_of(pipeline_id)) is not None


def sweep() -> Swept:
    """Remove every directory whose time is over, and what removals that were cut off have left.

    Only names that are ours are looked at; anything else below PIPELINES_DIR stays.
    """
    now = timezone.now()
    found = list(_directories())
    rows = Pipeline.objects.in_bulk([one for _, one in found if one is not None])
    over = [directory for directory, one in found if _may_go(directory, one, rows, now)]
    freed = [held for held in map(_removed, over) if held is not None]
    if freed:
        log.info("pipelines.directories_removed", directories=len(freed), bytes=sum(freed))
    return Swept(len(freed), sum(freed))


def may_go_on(pipeline: Pipeline) -> bool:
    """Whether an operator could still have it go on from where it stopped, as its rows say.

    A look, not the check: whether the command is signed and repeatable now is asked at resumption.
    """
    if not resuming.may_resume(pipeline):
        return False
    stage = resuming.stopped_at(pipeline)
    if stage.command == REPLY:
        return True
    document = Command.objects.filter(name=stage.command).values_list("document", flat=True).first()
    return document is not None and document.get("repeatable") is True


def _may_go(
    directory: Path, pipeline_id: UUID | None, rows: Mapping[UUID, Pipeline], now: datetime
) -> bool:
    if pipeline_id is None:
        return True
    pipeline = rows.get(pipeline_id)
    return _is_old(directory, now) if pipeline is None else _is_over(pipeline, now)


def _is_over(pipeline: Pipeline, now: datetime) -> bool:
    if pipeline.status not in Pipeline.ENDED:
        return False
    ended = pipeline.finished_at or now
    if may_go_on(pipeline):
        return ended + KEPT_FOR_RESUMPTION <= now
    return ended + _retention() <= now


def _is_old(directory: Path, now: datetime) -> bool:
    """Whether an orphan has not been touched for the retention period."""
    try:
        touched = directory.lstat().st_mtime
    except FileNotFoundError:
        return False
    return datetime.fromtimestamp(touched, UTC) + _retention() <= now


def _retention() -> timedelta:
    return timedelta(hours=settings.PIPELINE_FILES_RETENTION_HOURS)


def _directories() -> Iterator[tuple[Path, UUID | None]]:
    """Each directory that is ours, with its pipeline's id; None for the rest of a removal."""
    root = filing.root_of_all()
    if not root.is_dir():
        return
    for entry in list(root.iterdir()):
        pipeline_id = _id_of(entry.name)
        is_ours = pipeline_id is not None or filing.is_leftover(entry.name)
        if is_ours and entry.is_dir() and not entry.is_symlink():
            yield entry, pipeline_id


def _id_of(name: str) -> UUID | None:
    """The id that a directory is named after, in its one spelling."""
    try:
        found = UUID(name)
    except ValueError:
        return None
    return found if str(found) == name else None


def _removed(directory: Path) -> int | None:
    """Remove one directory; its bytes, or None where that did not work this time."""
    try:
        return filing.remove(directory)
    except (FilesRefused, OSError) as error:
        log.warning("pipelines.directory_stays", directory=directory.name, error=str(error))
        return None

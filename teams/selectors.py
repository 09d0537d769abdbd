"""Reads of the event log and of projects."""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import Max, Min, QuerySet

from guards.exceptions import NotFound
from guards.models import ApiToken
from teams.chain import ORIGIN
from teams.exceptions import CursorBeyondHead
from teams.models import Checkpoint, Event, LogPosition, Project
from teams.types import LogHead


def head() -> LogHead:
    """Where the log stands now."""
    row = LogPosition.objects.filter(pk=1).values_list("seq", "hash").first()
    return LogHead(*row) if row else LogHead(0, ORIGIN)


def oldest_seq() -> int:
    """The oldest sequence number that the log keeps; 1 while it is empty."""
    return Event.objects.aggregate(oldest=Min("seq"))["oldest"] or 1


def signed_seq() -> int:
    """The newest sequence number under a checkpoint; 0 when there is none."""
    return Checkpoint.objects.aggregate(newest=Max("seq"))["newest"] or 0


def events_after(
    cursor: int,
    *,
    limit: int = 200,
    kinds: Collection[str] | None = None,
    project: str | None = None,
) -> list[Event]:
    """Events with a sequence number above the cursor, oldest first.

    `kinds` and `project` narrow it; None means all. CursorBeyondHead when the cursor names an event
    that does not exist yet: it belongs to another log.
    """
    if cursor > 0 and cursor > head().seq:
        raise CursorBeyondHead(field="cursor")
    events = Event.objects.filter(seq__gt=cursor).order_by("seq")
    if kinds is not None:
        events = events.filter(kind__in=kinds)
    if project is not None:
        events = events.filter(project=project)
    return list(events[:limit])


def newest_events(*, limit: int = 50, project: str | None = None) -> list[Event]:
    """The last events, newest first: what a page shows before its feed is connected."""
    events = Event.objects.order_by("-seq")
    if project is not None:
        events = events.filter(project=project)
    return list(events[:limit])


def events_about(*, subject_type: str, subject_id: str) -> QuerySet[Event]:
    """The events about one row, oldest first, for its page."""
    return Event.objects.filter(subject_type=subject_type, subject_id=subject_id).order_by("seq")


def projects() -> QuerySet[Project]:
    """All projects by slug."""
    return Project.objects.order_by("slug")


def project(slug: str) -> Project:
    """The project of that slug; NotFound otherwise."""
    found = Project.objects.filter(slug=slug).first()
    if found is None:
        raise NotFound(f"there is no project {slug!r}", field="project")
    return found


def project_for(slug: str, token: ApiToken) -> Project:
    """The project, if this token may see it; NotFound otherwise, as if there were none."""
    if token.project and token.project != slug:
        raise NotFound(f"there is no project {slug!r}", field="project")
    return project(slug)


def events_between(after: int, limit: int) -> list[Event]:
    """The next events of the log after one: what the tailer and a catching-up socket read."""
    return list(Event.objects.filter(seq__gt=after).order_by("seq")[:limit])

"""`/api/v1`: the event log by cursor, and projects. Read-only."""

from __future__ import annotations

from typing import Annotated

from django.http import HttpRequest
from ninja import Query, Router

from guards.exceptions import InvalidInput
from guards.fronts.api import ERRORS, MOST_ROWS, USUAL_ROWS, ErrorOut, TokenAuth, token_of
from teams import selectors
from teams.models import Event
from teams.schemas import EventOut, EventPage, ProjectOut, ProjectPage

router = Router(tags=["teams"])

Cursor = Annotated[int, Query(ge=0, description="the last sequence number that you have")]
Limit = Annotated[int, Query(description="rows of a page, at most 200")]
Kinds = Annotated[list[str] | None, Query(alias="kind", description="only these kinds")]
_EVENT_ERRORS = {**ERRORS, 409: ErrorOut}


@router.get(
    "/events",
    response={200: EventPage, **_EVENT_ERRORS},
    auth=TokenAuth("events:read"),
    summary="The event log after a cursor, oldest first",
)
def list_events(
    request: HttpRequest,
    cursor: Cursor = 0,
    limit: Limit = USUAL_ROWS,
    kind: Kinds = None,
    project: str | None = None,
) -> EventPage:
    """A project's token sees that project's events only. A cursor beyond the head is a 409."""
    return _page(cursor, limit, kind, token_of(request).project or project)


@router.get(
    "/projects",
    response={200: ProjectPage, **ERRORS},
    auth=TokenAuth("events:read"),
    summary="Projects",
)
def list_projects(request: HttpRequest) -> ProjectPage:
    """All projects; for a project's token that one."""
    own = token_of(request).project
    rows = selectors.projects().filter(slug=own) if own else selectors.projects()
    return ProjectPage(items=[ProjectOut.of(row) for row in rows])


@router.get(
    "/projects/{project}/events",
    response={200: EventPage, **_EVENT_ERRORS},
    auth=TokenAuth("events:read"),
    summary="One project's events after a cursor, oldest first",
)
def list_project_events(
    request: HttpRequest,
    project: str,
    cursor: Cursor = 0,
    limit: Limit = USUAL_ROWS,
    kind: Kinds = None,
) -> EventPage:
    """A token of another project learns nothing, not even whether this one exists: 404."""
    selectors.project_for(project, token_of(request))
    return _page(cursor, limit, kind, project)


def _page(cursor: int, limit: int, kinds: list[str] | None, project: str | None) -> EventPage:
    if not 1 <= limit <= MOST_ROWS:
        raise InvalidInput(f"limit lies between 1 and {MOST_ROWS}", field="limit")
    head = selectors.head().seq
    found: list[Event] = selectors.events_after(
        cursor, limit=limit, kinds=kinds or None, project=project
    )
    reached = found[-1].seq if len(found) == limit else max(cursor, head)
    return EventPage(items=[EventOut.of(event) for event in found], cursor=reached, head=head)

"""`/api/v1`: decisions, contacts, identities, and who the caller is. Read-only."""

from __future__ import annotations

from typing import Annotated

from django.http import HttpRequest
from ninja import Query, Router

from guards import answers, selectors
from guards.fronts.api import ERRORS, USUAL_ROWS, AnyToken, TokenAuth, take_page, token_of
from guards.schemas import (
    ContactPage,
    DecisionOut,
    DecisionPage,
    IdentityOut,
    IdentityPage,
    WhoAmI,
)
from guards.types import Rule, Verdict

router = Router(tags=["guards"])

Cursor = Annotated[str | None, Query(description="`next_cursor` of the page before")]
Limit = Annotated[int, Query(description="rows of a page, at most 200")]


@router.get("/whoami", response={200: WhoAmI, **ERRORS}, auth=AnyToken(), summary="My own token")
def whoami(request: HttpRequest) -> WhoAmI:
    """Whom the caller's token belongs to, and what it may do. Needs no scope."""
    return answers.whoami(token_of(request))


@router.get(
    "/decisions",
    response={200: DecisionPage, **ERRORS},
    auth=TokenAuth("decisions:read"),
    summary="What was decided, newest first",
)
def list_decisions(
    request: HttpRequest,
    cursor: Cursor = None,
    limit: Limit = USUAL_ROWS,
    verdict: Verdict | None = None,
    rule: Rule | None = None,
    subject_type: str | None = None,
    subject_id: str | None = None,
) -> DecisionPage:
    """Decisions under the token's identity; all of them where the token belongs to none."""
    wanted = {
        "verdict": verdict,
        "rule": rule,
        "subject_type": subject_type,
        "subject_id": subject_id,
    }
    rows = selectors.decisions_for(token_of(request)).filter(
        **{name: value for name, value in wanted.items() if value is not None}
    )
    page = take_page(rows, cursor=cursor, limit=limit)
    items = [DecisionOut.of(row) for row in page.items]
    return DecisionPage(items=items, next_cursor=page.next_cursor)


@router.get(
    "/contacts",
    response={200: ContactPage, **ERRORS},
    auth=TokenAuth("contacts:read"),
    summary="The address book",
)
def list_contacts(
    request: HttpRequest, cursor: Cursor = None, limit: Limit = USUAL_ROWS
) -> ContactPage:
    """Contacts with their rights for the token's identity; for all where it belongs to none."""
    return answers.list_contacts(token_of(request), cursor=cursor, limit=limit)


@router.get(
    "/identities",
    response={200: IdentityPage, **ERRORS},
    auth=TokenAuth("identities:read"),
    summary="Whom this installation acts as",
)
def list_identities(
    request: HttpRequest, cursor: Cursor = None, limit: Limit = USUAL_ROWS
) -> IdentityPage:
    """The token's own identity; all of them where the token belongs to none."""
    rows = selectors.identities_for(token_of(request))
    page = take_page(rows, cursor=cursor, limit=limit, newest_first=False)
    items = [IdentityOut.of(row) for row in page.items]
    return IdentityPage(items=items, next_cursor=page.next_cursor)

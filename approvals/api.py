"""`/api/v1`: what waits, what was approved, what left. Read-only; answers come with their issue."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from django.http import HttpRequest
from ninja import Query, Router

from approvals import selectors
from approvals.models import Approval, Effect, Hold
from approvals.schemas import (
    ApprovalOut,
    ApprovalPage,
    EffectOut,
    EffectPage,
    HoldOut,
    HoldPage,
)
from guards.fronts.api import ERRORS, USUAL_ROWS, TokenAuth, take_page, token_of

router = Router(tags=["approvals"])

Cursor = Annotated[str | None, Query(description="`next_cursor` of the page before")]
Limit = Annotated[int, Query(description="rows of a page, at most 200")]
_auth = TokenAuth("approvals:read")


@router.get(
    "/holds", response={200: HoldPage, **ERRORS}, auth=_auth, summary="Drafts that wait or waited"
)
def list_holds(
    request: HttpRequest,
    cursor: Cursor = None,
    limit: Limit = USUAL_ROWS,
    state: Hold.State | None = None,
) -> HoldPage:
    """Newest first. A project's token sees its project's, an agent's token what it asked for."""
    rows = selectors.visible_to(token_of(request), selectors.holds())
    rows = rows.filter(state=state) if state else rows
    page = take_page(rows, cursor=cursor, limit=limit, key="since")
    return HoldPage(items=[HoldOut.of(row) for row in page.items], next_cursor=page.next_cursor)


@router.get("/approvals", response={200: ApprovalPage, **ERRORS}, auth=_auth, summary="Approvals")
def list_approvals(
    request: HttpRequest,
    cursor: Cursor = None,
    limit: Limit = USUAL_ROWS,
    state: Approval.State | None = None,
) -> ApprovalPage:
    """Newest first. A project's token sees its project's, an agent's token what it asked for."""
    rows = selectors.visible_to(token_of(request), selectors.approvals())
    rows = rows.filter(state=state) if state else rows
    page = take_page(rows, cursor=cursor, limit=limit, key="created_at")
    items = [ApprovalOut.of(row) for row in page.items]
    return ApprovalPage(items=items, next_cursor=page.next_cursor)


@router.get(
    "/effects",
    response={200: EffectPage, **ERRORS},
    auth=_auth,
    summary="Acts that left, or did not, or may have",
)
def list_effects(
    request: HttpRequest,
    cursor: Cursor = None,
    limit: Limit = USUAL_ROWS,
    phase: Effect.Phase | None = None,
) -> EffectPage:
    """Newest first. A project's token sees its project's, an agent's token what it asked for."""
    rows = selectors.visible_effects(token_of(request))
    rows = rows.filter(phase=phase) if phase else rows
    page = take_page(rows, cursor=cursor, limit=limit, key="created_at")
    return EffectPage(items=[EffectOut.of(row) for row in page.items], next_cursor=page.next_cursor)


@router.get(
    "/effects/{effect_id}",
    response={200: EffectOut, **ERRORS},
    auth=_auth,
    summary="One act with what was seen of it",
)
def show_effect(request: HttpRequest, effect_id: UUID) -> EffectOut:
    """An act that the token may not see is a 404."""
    return EffectOut.of(selectors.visible_effect(token_of(request), effect_id))

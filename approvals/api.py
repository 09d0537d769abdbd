"""`/api/v1`: what waits, what was approved, what left; and the answers of people's own tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Status

from approvals import registry, selectors
from approvals.models import Approval, Effect, Hold
from approvals.schemas import (
    AnsweredOut,
    ApprovalOut,
    ApprovalPage,
    ApproveIn,
    ConnectionOut,
    ConnectionPage,
    EffectOut,
    EffectPage,
    HoldOut,
    HoldPage,
    ReasonIn,
    ReviewOut,
)
from approvals.services import approvals as approval_services
from approvals.services import holds as hold_services
from approvals.services import people
from approvals.services import permissions as permission_services
from guards.exceptions import Refused
from guards.fronts.api import (
    ACTING,
    ERRORS,
    USUAL_ROWS,
    IdempotencyKey,
    TokenAuth,
    asker_of,
    mark_replayed,
    take_page,
    token_of,
)
from guards.services import idempotency

router = Router(tags=["approvals"])

Cursor = Annotated[str | None, Query(description="`next_cursor` of the page before")]
Limit = Annotated[int, Query(description="rows of a page, at most 200")]
_auth = TokenAuth("approvals:read")
_answers = TokenAuth("approvals:answer")


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


@router.get(
    "/connections",
    response={200: ConnectionPage, **ERRORS},
    auth=_auth,
    summary="Credentials of accounts, without their secrets",
)
def list_connections(
    request: HttpRequest, cursor: Cursor = None, limit: Limit = USUAL_ROWS
) -> ConnectionPage:
    """Newest first. For an operator's own token: neither for an agent's nor for a project's."""
    rows = selectors.visible_connections(token_of(request))
    page = take_page(rows, cursor=cursor, limit=limit, key="created_at")
    items = [ConnectionOut.of(row) for row in page.items]
    return ConnectionPage(items=items, next_cursor=page.next_cursor)


@router.post(
    "/effects/{effect_id}/look",
    response=ERRORS,
    auth=_auth,
    summary="Look again: in the console only",
)
def look_again(request: HttpRequest, effect_id: UUID) -> None:
    """Always refused (`session-needed`): a look stands under a session, and a token has none.

    What looks have seen is in the act's `observations`.
    """
    selectors.visible_effect(token_of(request), effect_id)
    raise Refused(
        "looking again needs an operator's live session: open the act in the console",
        rule="session-needed",
    )


@router.post(
    "/holds/{hold_id}/open",
    response={201: ReviewOut, **ACTING},
    auth=_answers,
    summary="Open a held draft for review",
)
def open_for_review(request: HttpRequest, hold_id: UUID) -> Status[ReviewOut]:
    """Takes a fresh snapshot and starts its clock; an earlier one becomes void, nothing leaves.

    For a person's own token. Drafts that are answered in the console only are refused by name.
    """
    hold = selectors.visible_hold(token_of(request), hold_id)
    approval = hold_services.open_for_review(hold_id=hold.pk, by=asker_of(request))
    return Status(201, _review(approval))


@router.get(
    "/approvals/{approval_id}",
    response={200: ReviewOut, **ERRORS},
    auth=_answers,
    summary="Exactly what would happen",
)
def show_approval(request: HttpRequest, approval_id: UUID) -> ReviewOut:
    """What a person reads before the answer. For a person's own token; it changes nothing."""
    people.require_person(asker_of(request))
    return _review(selectors.visible_approval(token_of(request), approval_id))


@router.post(
    "/approvals/{approval_id}/approve",
    response={200: AnsweredOut, **ACTING},
    auth=_answers,
    summary="Say yes to exactly this",
)
def approve(
    request: HttpRequest,
    response: HttpResponse,
    approval_id: UUID,
    body: ApproveIn,
    key: IdempotencyKey = "",
) -> AnsweredOut:
    """`digest` is what was read; anything else is refused. It leaves exactly once."""
    asked = selectors.visible_approval(token_of(request), approval_id)
    permit = registry.is_permission(asked.kind)
    say_yes: Callable[..., object] = (
        permission_services.permit if permit else approval_services.approve
    )
    return _answer(request, response, asked, "approve", body.model_dump(), key, say_yes)


@router.post(
    "/approvals/{approval_id}/reject",
    response={200: AnsweredOut, **ACTING},
    auth=_answers,
    summary="Say no, with a reason",
)
def reject(
    request: HttpRequest,
    response: HttpResponse,
    approval_id: UUID,
    body: ReasonIn,
    key: IdempotencyKey = "",
) -> AnsweredOut:
    """The reason reaches whoever asked. Nothing leaves."""
    asked = selectors.visible_approval(token_of(request), approval_id)
    act = approval_services.reject
    return _answer(request, response, asked, "reject", body.model_dump(), key, act)


@router.post(
    "/approvals/{approval_id}/request-changes",
    response={200: AnsweredOut, **ACTING},
    auth=_answers,
    summary="Ask for another draft, with a reason",
)
def request_changes(
    request: HttpRequest,
    response: HttpResponse,
    approval_id: UUID,
    body: ReasonIn,
    key: IdempotencyKey = "",
) -> AnsweredOut:
    """The reason reaches whoever asked. Nothing leaves."""
    asked = selectors.visible_approval(token_of(request), approval_id)
    act = approval_services.request_changes
    return _answer(request, response, asked, "request-changes", body.model_dump(), key, act)


def _review(approval: Approval) -> ReviewOut:
    left = selectors.clock(approval).seconds_left
    return ReviewOut.shown(approval, preview=selectors.preview(approval), left=left)


def _answer(
    request: HttpRequest,
    response: HttpResponse,
    asked: Approval,
    operation: str,
    given: dict[str, Any],
    key: str,
    act: Callable[..., object],
) -> AnsweredOut:
    """One answer by one key: repeated, it is the first one's."""

    def answer(_: object) -> dict[str, Any]:
        act(approval_id=asked.pk, by=asker_of(request), via=Approval.Via.TOKEN, **given)
        return ApprovalOut.of(Approval.objects.get(pk=asked.pk)).model_dump(mode="json")

    answered = idempotency.once(
        token=token_of(request),
        key=key,
        operation=operation,
        arguments={"approval": str(asked.pk), **given},
        act=answer,
    )
    mark_replayed(response, replayed=answered.replayed)
    return AnsweredOut(replayed=answered.replayed, **answered.document)

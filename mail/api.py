"""`/api/v1`: messages and what was written to leave. Read-only."""

from __future__ import annotations

from typing import Annotated

from django.http import HttpRequest
from ninja import Query, Router

from guards.fronts.api import ERRORS, USUAL_ROWS, TokenAuth, take_page, token_of
from guards.types import Rule, TrustLevel
from mail import selectors
from mail.models import Outbound
from mail.schemas import MessageDetail, MessageOut, MessagePage, OutboundOut, OutboundPage

router = Router(tags=["mail"], auth=TokenAuth("messages:read"))

Cursor = Annotated[str | None, Query(description="`next_cursor` of the page before")]
Limit = Annotated[int, Query(description="rows of a page, at most 200")]


@router.get("/messages", response={200: MessagePage, **ERRORS}, summary="Messages, newest first")
def list_messages(
    request: HttpRequest,
    cursor: Cursor = None,
    limit: Limit = USUAL_ROWS,
    trust: TrustLevel | None = None,
    rule: Rule | None = None,
    account: str | None = None,
) -> MessagePage:
    """Messages of the token's identity. Subjects of senders without `r` are redacted."""
    wanted = {"trust_level": trust, "rule": rule, "account__name": account}
    rows = selectors.messages_for(token_of(request)).filter(
        **{name: str(value) for name, value in wanted.items() if value is not None}
    )
    page = take_page(rows, cursor=cursor, limit=limit)
    items = [MessageOut.of(row) for row in selectors.readable(page.items)]
    return MessagePage(items=items, next_cursor=page.next_cursor)


@router.get(
    "/messages/{message_id}", response={200: MessageDetail, **ERRORS}, summary="One message"
)
def show_message(request: HttpRequest, message_id: int) -> MessageDetail:
    """One message with its evidence; its text and parts where its sender may be read."""
    return MessageDetail.of(selectors.message_for(token_of(request), message_id))


@router.get("/outbound", response={200: OutboundPage, **ERRORS}, summary="Outgoing mail")
def list_outbound(
    request: HttpRequest,
    cursor: Cursor = None,
    limit: Limit = USUAL_ROWS,
    status: Outbound.Status | None = None,
) -> OutboundPage:
    """What the token's identity wrote, newest first, with what became of it."""
    rows = selectors.outbound_for(token_of(request))
    if status is not None:
        rows = rows.filter(status=status)
    page = take_page(rows, cursor=cursor, limit=limit, key="created_at")
    covered = selectors.answers_to_the_covered(page.items)
    items = [OutboundOut.of(row, covered=row.pk in covered) for row in page.items]
    return OutboundPage(items=items, next_cursor=page.next_cursor)

"""`/api/v1`: messages, what was written to leave, and drafts of replies."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Status

from guards.fronts.api import (
    ACTING,
    ERRORS,
    USUAL_ROWS,
    IdempotencyKey,
    TokenAuth,
    mark_replayed,
    take_page,
    token_of,
)
from guards.types import Rule, TrustLevel
from mail import answers, selectors
from mail.models import Outbound
from mail.schemas import (
    AttachmentOut,
    DraftedReply,
    MessageDetail,
    MessagePage,
    MimeOut,
    OutboundOut,
    OutboundPage,
    ReplyDraft,
    ReplyOut,
    TrustOut,
)

router = Router(tags=["mail"], auth=TokenAuth("messages:read"))

Cursor = Annotated[str | None, Query(description="`next_cursor` of the page before")]
Limit = Annotated[int, Query(description="rows of a page, at most 200")]
Offset = Annotated[int, Query(description="where to begin, in bytes of the decoded part")]
Length = Annotated[int, Query(description=f"bytes to give, at most {answers.MOST_BYTES}")]
TextOffset = Annotated[int, Query(description="where to begin in the text, in characters")]
TextLength = Annotated[
    int, Query(description=f"characters to give, at most {answers.MOST_CHARACTERS}")
]


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
    return answers.list_messages(
        token_of(request), cursor=cursor, limit=limit, trust=trust, rule=rule, account=account
    )


@router.get(
    "/messages/{message_id}", response={200: MessageDetail, **ERRORS}, summary="One message"
)
def show_message(
    request: HttpRequest,
    message_id: int,
    offset: TextOffset = 0,
    length: TextLength = answers.MOST_CHARACTERS,
) -> MessageDetail:
    """One message with its evidence; its text and parts where its sender may be read."""
    return answers.read_message(token_of(request), message_id, offset=offset, length=length)


@router.get(
    "/messages/{message_id}/trust", response={200: TrustOut, **ERRORS}, summary="Why it is believed"
)
def check_trust(request: HttpRequest, message_id: int) -> TrustOut:
    """How far a message is believed and why, and what its sender may ask now. Never its text."""
    return answers.check_trust(token_of(request), message_id)


@router.get(
    "/messages/{message_id}/mime", response={200: MimeOut, **ERRORS}, summary="Its MIME tree"
)
def show_mime(request: HttpRequest, message_id: int) -> MimeOut:
    """Types and sizes of all parts; names where its sender may be read. Never its text."""
    return answers.show_mime(token_of(request), message_id)


@router.get(
    "/messages/{message_id}/parts/{path}",
    response={200: AttachmentOut, **ERRORS},
    summary="One part, in pieces",
)
def download_attachment(
    request: HttpRequest,
    message_id: int,
    path: str,
    offset: Offset = 0,
    length: Length = answers.MOST_BYTES,
) -> AttachmentOut:
    """One decoded part of a message whose sender may be read, as base64. Recorded as a decision."""
    return answers.download_attachment(
        token_of(request), message_id, path, offset=offset, length=length
    )


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


_drafts = TokenAuth("replies:draft")


@router.post(
    "/messages/{message_id}/replies",
    response={201: DraftedReply, **ACTING},
    auth=_drafts,
    summary="Draft a reply, held for a person",
)
def draft_reply(
    request: HttpRequest,
    response: HttpResponse,
    message_id: int,
    body: ReplyDraft,
    key: IdempotencyKey = "",
) -> Status[DraftedReply]:
    """Nothing is sent by this call: a person sees exactly what would leave, and answers."""
    drafted = answers.draft_reply(token_of(request), message_id, body.text, key)
    mark_replayed(response, replayed=drafted.replayed)
    return Status(201, drafted)


@router.get(
    "/replies/{reply_id}",
    response={200: ReplyOut, **ERRORS},
    auth=_drafts,
    summary="How far a drafted reply has come",
)
def reply_status(request: HttpRequest, reply_id: UUID) -> ReplyOut:
    """A person's no shows here with its reason; unknown stays unknown."""
    return answers.reply_status(token_of(request), reply_id)

"""What mail answers to a token, the same over HTTP and MCP: redaction, pages and shapes alike."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from guards.exceptions import InvalidInput
from guards.fronts.api import USUAL_ROWS, take_page
from guards.models import ApiToken, Identity
from guards.services import idempotency
from guards.types import Asker, Rule, Subject, TrustLevel
from mail import selectors
from mail.schemas import (
    AttachmentOut,
    DraftedReply,
    MessageDetail,
    MessageOut,
    MessagePage,
    MimeOut,
    ReplyOut,
    TrustOut,
)
from mail.services import drafting, reading

#: What one call gives of a part (bytes) or a text (characters): the next calls give the rest.
MOST_BYTES = 512 * 1024
MOST_CHARACTERS = 256 * 1024

Cursor = Annotated[str | None, Field(description="`next_cursor` of the page before")]
Limit = Annotated[int, Field(description="rows of a page, at most 200")]
MessageId = Annotated[int, Field(description="`id` of a message, as lists show it")]
PartPath = Annotated[
    str, Field(description="`path` of a leaf in the MIME tree, such as 1.2", max_length=255)
]
Offset = Annotated[int, Field(description="where to begin, in bytes of the decoded part")]
Length = Annotated[int, Field(description=f"bytes to give, at most {MOST_BYTES}")]
TextOffset = Annotated[int, Field(description="where to begin in the text, in characters")]
TextLength = Annotated[int, Field(description=f"characters to give, at most {MOST_CHARACTERS}")]
AccountName = Annotated[str | None, Field(description="only this account's", max_length=64)]


ReplyId = Annotated[UUID, Field(description="`id` of a reply, as draft_reply gives it")]
ReplyText = Annotated[
    str,
    Field(
        description="the reply's text; subject, recipient and thread come from the message",
        max_length=100_000,
    ),
]
IdempotencyKey = Annotated[
    str,
    Field(
        description="your own name for this call: repeated with it, it acts once",
        max_length=200,
    ),
]


def list_messages(
    token: ApiToken,
    cursor: Cursor = None,
    limit: Limit = USUAL_ROWS,
    trust: TrustLevel | None = None,
    rule: Rule | None = None,
    account: AccountName = None,
) -> MessagePage:
    """Messages of the token's identity. Subjects of senders without `r` are redacted."""
    wanted = {"trust_level": trust, "rule": rule, "account__name": _storable(account)}
    rows = selectors.messages_for(token).filter(
        **{name: str(value) for name, value in wanted.items() if value is not None}
    )
    page = take_page(rows, cursor=cursor, limit=limit)
    items = [MessageOut.of(row) for row in selectors.readable(page.items)]
    return MessagePage(items=items, next_cursor=page.next_cursor)


def read_message(
    token: ApiToken,
    message_id: MessageId,
    offset: TextOffset = 0,
    length: TextLength = MOST_CHARACTERS,
) -> MessageDetail:
    """One message with its evidence; its text and parts where its sender may be read."""
    _require_piece(offset, length, most=MOST_CHARACTERS)
    row = selectors.message_for(token, message_id)
    return MessageDetail.of(row, offset=offset, length=length)


def check_trust(token: ApiToken, message_id: MessageId) -> TrustOut:
    """How far a message is believed and why, and what its sender may ask now. Never its text."""
    row = selectors.message_for(token, message_id)
    return TrustOut.of(row, records=list(row.message.trust_records.all()))


def show_mime(token: ApiToken, message_id: MessageId) -> MimeOut:
    """The tree of a message: types and sizes, and names where its sender may be read."""
    row = selectors.message_for(token, message_id)
    return MimeOut.of(selectors.parsed(row.message).structure, named=row.readable)


def download_attachment(
    token: ApiToken,
    message_id: MessageId,
    path: PartPath,
    offset: Offset = 0,
    length: Length = MOST_BYTES,
) -> AttachmentOut:
    """One part of a message whose sender may be read, or a piece of it, as base64."""
    _require_piece(offset, length, most=MOST_BYTES)
    row = selectors.message_for(token, message_id)
    part = reading.download_part(row=row, path=path, by=Asker("token", token.prefix))
    return AttachmentOut.of(part, message_id=message_id, offset=offset, length=length)


def draft_reply(
    token: ApiToken, message_id: MessageId, text: ReplyText, idempotency_key: IdempotencyKey
) -> DraftedReply:
    """Write a reply to a message's authenticated sender, and hold it for a person.

    The same key with the same message and text gets the first answer, another one a 409.
    """

    def act(origin: Subject) -> dict[str, Any]:
        draft = drafting.draft_reply(
            message=selectors.message_for(token, message_id).message,
            text=text,
            origin=origin,
            asker=_asker(token),
        )
        return reply_status(token, draft.pk).model_dump(mode="json")

    answered = idempotency.once(
        token=token,
        key=idempotency_key,
        operation="draft_reply",
        arguments={"message_id": message_id, "text": text},
        act=act,
    )
    return DraftedReply(replayed=answered.replayed, **answered.document)


def reply_status(token: ApiToken, reply_id: ReplyId) -> ReplyOut:
    """How far a reply has come: waiting, rejected and why, sent, or honestly unknown."""
    return ReplyOut.of(selectors.reply_for(token, reply_id))


def _asker(token: ApiToken) -> Asker:
    """An agent's token asks as its identity: what it asks for, it never answers itself."""
    if token.identity is not None and token.identity.kind == Identity.Kind.AGENT:
        return Asker("identity", token.identity.handle)
    return Asker("token", token.prefix)


def _require_piece(offset: int, length: int, *, most: int) -> None:
    if offset < 0:
        raise InvalidInput("an offset is 0 or more", field="offset")
    if not 1 <= length <= most:
        raise InvalidInput(f"length lies between 1 and {most}", field="length")


def _storable(name: str | None) -> str | None:
    """A name to look up; PostgreSQL cannot even be asked for one with NUL."""
    if name is not None and "\0" in name:
        raise InvalidInput("a name has no NUL", field="account")
    return name

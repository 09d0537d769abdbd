"""Shapes of mail in `/api/v1`. Text from mail is untrusted data, and named so."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from ninja import Field, Schema
from pydantic import ConfigDict

from mail import sentences
from mail.listing import REDACTED
from mail.models import Message, Outbound, Part, TrustRecord
from mail.selectors import Readable
from mail.types import MimeNode, ParsedPart


class MessageOut(Schema):
    """One message as it may be listed: the subject only where its sender may be read."""

    id: int
    account: str
    number: int
    identity: str
    received_at: datetime
    date: datetime | None
    sender: str
    sender_name: str
    subject: str
    readable: bool
    message_id: str
    size: int
    trust: str
    trust_reason: str
    permission: str
    action: str
    verdict: str
    rule: str
    quarantine: str
    truncated: bool

    @classmethod
    def of(cls, row: Readable) -> MessageOut:
        """The shape of one row."""
        return cls(**_listed(row))


class PartOut(Schema):
    """One leaf of a message's MIME tree; its name is shown text, never a path."""

    path: str
    type: str
    name: str
    size: int
    sha256: str
    is_attachment: bool

    @classmethod
    def of(cls, part: Part) -> PartOut:
        """The shape of one part."""
        return cls(
            path=part.path,
            type=part.type,
            name=part.name,
            size=part.size,
            sha256=part.sha256,
            is_attachment=part.is_attachment,
        )


class MessageDetail(MessageOut):
    """One message with its untrusted text (null where it may not be read), evidence and parts.

    A long text comes in pieces: `text_size` counts all its characters, `next_offset` says where the
    next piece begins.
    """

    untrusted_text: str | None
    text_size: int | None
    next_offset: int | None
    to: list[str]
    cc: list[str]
    defects: list[str]
    trust_evidence: dict[str, Any]
    parts: list[PartOut]

    @classmethod
    def of(cls, row: Readable, *, offset: int = 0, length: int | None = None) -> MessageDetail:
        """The shape of one row with everything that belongs to it, and so much of its text."""
        message = row.message
        end = len(message.text) if length is None else offset + length
        recipients = list(message.recipients.all())
        return cls(
            **_listed(row),
            untrusted_text=message.text[offset:end] if row.readable else None,
            text_size=len(message.text) if row.readable else None,
            next_offset=end if row.readable and end < len(message.text) else None,
            to=[one.address for one in recipients if one.kind == "to"],
            cc=[one.address for one in recipients if one.kind == "cc"],
            defects=message.defects,
            trust_evidence=message.trust_evidence,
            parts=[PartOut.of(part) for part in message.parts.all()] if row.readable else [],
        )


class MessagePage(Schema):
    """Some messages, and the cursor of those that follow."""

    items: list[MessageOut]
    next_cursor: str | None


class VerdictOut(Schema):
    """One verdict about a message as it was kept, with what made it be looked at."""

    at: datetime
    level: str
    reason: str
    cause: str = Field(..., examples=["ingest"])

    @classmethod
    def of(cls, row: TrustRecord) -> VerdictOut:
        """The shape of one row."""
        return cls(at=row.at, level=row.level, reason=row.reason, cause=row.cause)


class TrustOut(Schema):
    """How far a message is believed and what became of it. Never its text.

    `permission` is what the sender may ask now, `rule` what decided when the message came.
    """

    id: int
    sender: str
    level: str
    reason: str
    explanation: str
    evidence: dict[str, Any]
    permission: str = Field(..., examples=["r--"])
    readable: bool
    action: str
    verdict: str
    rule: str
    rule_explanation: str
    verdicts: list[VerdictOut]

    @classmethod
    def of(cls, row: Readable, *, records: Iterable[TrustRecord]) -> TrustOut:
        """The shape of one message's trust, its verdicts oldest first."""
        message = row.message
        return cls(
            id=message.pk,
            sender=message.sender,
            level=message.trust_level,
            reason=message.trust_reason,
            explanation=sentences.trust_sentence(message.trust_reason),
            evidence=message.trust_evidence,
            permission=str(row.permission),
            readable=row.readable,
            action=message.action,
            verdict=message.verdict,
            rule=message.rule,
            rule_explanation=sentences.rule_sentence(message.rule),
            verdicts=[VerdictOut.of(record) for record in records],
        )


class MimeOut(Schema):
    """One node of a message's MIME tree; `size` is in bytes as they travelled, `name` redacted
    where its sender may not be read."""

    path: str
    type: str
    size: int
    name: str | None
    children: list[MimeOut]

    @classmethod
    def of(cls, node: MimeNode, *, named: bool) -> MimeOut:
        """The shape of one node and all below it; the parser bounds their depth."""
        return cls(
            path=node.path,
            type=node.type,
            size=node.size,
            name=node.name if named or node.name is None else REDACTED,
            children=[cls.of(child, named=named) for child in node.children],
        )


class AttachmentOut(Schema):
    """A piece of one decoded part. `size` and `sha256` are the whole part's, `is_signed` says
    whether the message's signature covers it, `next_offset` where the next piece begins."""

    message: int
    path: str
    type: str
    name: str
    size: int
    sha256: str
    is_signed: bool
    offset: int
    next_offset: int | None
    content_base64: str

    @classmethod
    def of(cls, part: ParsedPart, *, message_id: int, offset: int, length: int) -> AttachmentOut:
        """The shape of so many bytes from there on."""
        end = offset + length
        return cls(
            message=message_id,
            path=part.path,
            type=part.type,
            name=part.name or "",
            size=len(part.content),
            sha256=part.sha256,
            is_signed=part.is_signed,
            offset=offset,
            next_offset=end if end < len(part.content) else None,
            content_base64=base64.b64encode(part.content[offset:end]).decode(),
        )


class OutboundFileOut(Schema):
    """A file that leaves with a message: its digest, never its bytes."""

    name: str = Field(examples=["02-report.pdf"])
    type: str = Field(examples=["application/pdf"])
    size: int
    sha256: str


class OutboundOut(Schema):
    """One outgoing message and what became of it."""

    id: str
    account: str
    to: list[str]
    subject: str
    message_id: str
    in_reply_to: int | None
    origin: str
    automatic: bool
    files: list[OutboundFileOut]
    status: str
    reason: str
    created_at: datetime
    settled_at: datetime | None

    @classmethod
    def of(cls, row: Outbound, *, covered: bool) -> OutboundOut:
        """The shape of one row; `covered` when it repeats a subject that may not be read."""
        return cls(
            id=str(row.pk),
            account=row.account.name,
            to=row.to,
            subject=REDACTED if covered else row.subject,
            message_id=row.message_id,
            in_reply_to=row.in_reply_to_id,
            origin=f"{row.origin_type}:{row.origin_id}",
            automatic=row.automatic,
            files=[
                OutboundFileOut(
                    name=REDACTED if covered else file.name,
                    type=file.type,
                    size=file.size,
                    sha256=file.sha256,
                )
                for file in row.files.all()
            ],
            status=row.status,
            reason=row.reason,
            created_at=row.created_at,
            settled_at=row.settled_at,
        )


class ObservedOut(Schema):
    """What a later look at a sent reply found. It changes nothing."""

    at: datetime
    outcome: str = Field(examples=["verified_sent_observation"])


class ReplyOut(Schema):
    """A drafted reply, and how far it has come. Its text is what the agent wrote."""

    id: str
    message_id: int = Field(description="`id` of the message that it answers")
    to: list[str]
    status: str = Field(examples=["held"])
    reason: str = Field(description="why it stands so, as one stable word")
    says: str = Field(description="the same in a sentence")
    answer: str = Field(description="what the person wrote who said no, or asked for changes")
    answered_by: str
    phase: str = Field(description="how far its one effect came; empty before a yes")
    outcome: str = Field(description="why the effect ended so, as one stable word")
    observations: list[ObservedOut]
    created_at: datetime
    settled_at: datetime | None

    @classmethod
    def of(cls, row: Outbound) -> ReplyOut:
        """The shape of one row, with its hold and its effect."""
        hold, effect = row.hold, row.effect
        return cls(
            id=str(row.pk),
            message_id=row.in_reply_to_id or 0,
            to=row.to,
            status=row.status,
            reason=row.reason,
            says=sentences.reply_sentence(row.status),
            answer=hold.answer if hold else "",
            answered_by=hold.closed_by if hold and hold.answer else "",
            phase=effect.phase if effect else "",
            outcome=effect.reason if effect else "",
            observations=[
                ObservedOut(at=seen.at, outcome=seen.outcome)
                for seen in (effect.observations.all() if effect else ())
            ],
            created_at=row.created_at,
            settled_at=row.settled_at,
        )


class DraftedReply(ReplyOut):
    """The answer to a draft: the reply, and whether this call was made before."""

    replayed: bool


class ReplyDraft(Schema):
    """The text of a reply; everything else is taken from the message that it answers."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(max_length=100_000, examples=["Thank you. I shall look at it today."])


class OutboundPage(Schema):
    """Some outgoing messages, and the cursor of those that follow."""

    items: list[OutboundOut]
    next_cursor: str | None


def _listed(row: Readable) -> dict[str, Any]:
    message: Message = row.message
    return {
        "id": message.pk,
        "account": message.account.name,
        "number": message.number,
        "identity": message.account.identity.handle,
        "received_at": message.received_at,
        "date": message.date,
        "sender": message.sender,
        "sender_name": message.sender_name,
        "subject": message.subject if row.readable else REDACTED,
        "readable": row.readable,
        "message_id": message.message_id,
        "size": message.size,
        "trust": message.trust_level,
        "trust_reason": message.trust_reason,
        "permission": str(row.permission),
        "action": message.action,
        "verdict": message.verdict,
        "rule": message.rule,
        "quarantine": message.quarantine,
        "truncated": message.truncated,
    }

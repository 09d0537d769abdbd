"""What a person reads before saying yes to a reply through Gmail: every field, nothing hidden."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any

from mail import adapters
from mail.gmail.exact_mime import Reply
from mail.gmail.snapshot import Snapshot
from mail.listing import REDACTED
from mail.models import Outbound

#: What people are told about the end that such an act may have.
OUTCOME = "Verified in sender's Sent mailbox"


def preview(
    draft: Outbound, reply: Reply, mime: bytes, source: Snapshot, observed_at: datetime
) -> dict[str, Any]:
    """The fields of ADR-016 as JSON. Expiry and contact counts are the approval's and its grant's.

    `reply_to` is what the source's sender wrote there: shown, never followed.
    """
    return {
        "mailbox": reply.sender,
        "from": reply.sender,
        "to": [reply.to],
        "cc": [],
        "bcc": [],
        "reply_to": [source.reply_to] if source.reply_to else [],
        "subject": reply.subject,
        "date": reply.date.isoformat(),
        "message_id": reply.message_id,
        "in_reply_to": [reply.in_reply_to],
        "references": list(reply.references),
        "text": reply.text,
        "attachments": [],
        "signed": False,
        "account": draft.account.name,
        "thread": draft.thread_id,
        "automatic": False,
        "outcome": OUTCOME,
        "mime_sha256": hashlib.sha256(mime).hexdigest(),
        "size": len(mime),
        "source": _source(draft, source, observed_at),
    }


def _source(draft: Outbound, source: Snapshot, observed_at: datetime) -> dict[str, Any]:
    """What is answered: our own copy's text and trust, and what Gmail said of it a moment ago.

    A sender whom nobody here may read stays covered until an operator reveals the letter.
    """
    ours = adapters.source_preview(draft.in_reply_to) if draft.in_reply_to else {}
    shown = {} if ours.get("text") == REDACTED else {"subject": source.subject}
    return {
        **ours,
        **shown,
        "from": source.sender,
        "message_id": source.message_id,
        "observed_at": observed_at.isoformat(),
        "gmail": {
            "thread_id": source.thread_id,
            "message_id": source.source_id,
            "messages": len(source.messages),
            "revision": source.revision,
            "digest": source.digest,
        },
    }

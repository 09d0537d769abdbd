"""Answers of Google's and messages of Gmail's for the tests of the exact reply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from mail.gateways.google.base import HeaderMessage, MessageFacts, RawMessage, ThreadHeaders
from mail.gmail import exact_mime, readback, snapshot
from mail.gmail.exact_mime import Reply

THREAD, SOURCE, SENT = "18c0ffee00000001", "18c0ffee00000002", "18c0ffee00000009"
MAILBOX = "ada@agents.example"
DATE = datetime(2026, 12, 1, 8, 0, tzinfo=UTC)
#: The headers of the message that is answered.
HEADERS = {
    "From": "Bob Example <bob@example.org>",
    "To": MAILBOX,
    "Subject": "Quarterly figures",
    "Date": "Tue, 1 Dec 2026 07:00:00 +0000",
    "Message-ID": "<q4@example.org>",
    "References": "<q2@example.org> <q3@example.org>",
}


def facts(number: str = SOURCE, *, thread: str = THREAD, labels: Sequence[str] = ()) -> Any:
    """What Gmail says about a message."""
    return MessageFacts(number, thread, frozenset(labels), 100, 1_764_572_400_000)


def source(*more: tuple[str, str], size: int = 2_000, **headers: Any) -> HeaderMessage:
    """The source message. A header given as None is left out; `more` stand behind the others."""
    named = HEADERS | {name.replace("_", "-"): value for name, value in headers.items()}
    pairs = tuple((name, value) for name, value in named.items() if value is not None)
    return HeaderMessage(facts(), (*pairs, *more), size)


def thread(*members: HeaderMessage | str, **changes: Any) -> ThreadHeaders:
    """A thread of these messages; an id stands for a plain one, none for the source alone."""
    known = tuple(
        HeaderMessage(facts(one), (), 100) if isinstance(one, str) else one
        for one in members or (source(),)
    )
    return replace(ThreadHeaders(THREAD, 4711, known), **changes)


def seen(*more: tuple[str, str], **headers: Any) -> snapshot.Snapshot:
    """The snapshot of such a source."""
    return snapshot.read(thread(source(*more, **headers)), SOURCE)


def reply(text: str = "They are fine.\n", **changes: Any) -> Reply:
    """The reply to the source."""
    made = exact_mime.answer(
        seen(), sender=MAILBOX, message_id="reply-1@agents.example", date=DATE, text=text
    )
    return replace(made, **changes)


def expected(answer: Reply) -> readback.Expected:
    """What has to be found when this reply was sent."""
    return readback.Expected(
        thread_id=THREAD,
        message_id=answer.message_id,
        sender=answer.sender,
        to=answer.to,
        subject=answer.subject,
        in_reply_to=answer.in_reply_to,
        references=answer.references,
        text=answer.text,
    )


def copy(raw: bytes, *, labels: Sequence[str] = ("SENT",), **changes: Any) -> RawMessage:
    """Gmail's own copy of a sent message."""
    return RawMessage(replace(facts(SENT, labels=labels), **changes), raw)

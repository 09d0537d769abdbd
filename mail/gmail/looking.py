"""Looks at Gmail with a proved token: at a source, at its thread, at a copy, and into Sent."""

from __future__ import annotations

from collections.abc import Mapping

from approvals.exceptions import ContactRefused
from approvals.types import Act, Contact, ContactOutcome, ContactResult, Grant
from guards.exceptions import CountersignError
from mail.exceptions import ProfileRefused
from mail.gateways.google.base import GoogleGateway
from mail.gmail import proofs, readback, request, snapshot
from mail.gmail.proofs import Proven, Token
from mail.gmail.readback import Expected
from mail.gmail.snapshot import Snapshot

_UNKNOWN = ContactOutcome.UNKNOWN
#: What one copy may weigh as it is answered, in bytes: base64 makes it a third larger.
_COPY_BYTES = 2 * readback.MAX_COPY_BYTES


def at_source(google: GoogleGateway, grant: Grant, token: Token, message_id: str) -> Snapshot:
    """The source by its Message-ID, and its thread: two reads."""
    page = google.find_source(grant=grant, token=token.secret, rfc822_message_id=message_id)
    found = snapshot.located(page)
    thread = google.thread_headers(grant=grant, token=token.secret, thread_id=found.thread_id)
    return snapshot.read(thread, found.id)


def at_thread(
    google: GoogleGateway, grant: Grant, token: Token, facts: Mapping[str, object]
) -> Snapshot:
    """The approved source in its thread, as it is now: one read."""
    thread = google.thread_headers(
        grant=grant, token=token.secret, thread_id=str(facts.get("thread_id", ""))
    )
    return snapshot.read(thread, str(approved_source(facts).get("source_id", "")))


def approved_source(facts: Mapping[str, object]) -> Mapping[str, object]:
    """What an approval binds of its source."""
    source = facts.get("source")
    return source if isinstance(source, Mapping) else {}


def at_copy(google: GoogleGateway, grant: Grant, token: Token, sent_id: str, act: Act) -> None:
    """Gmail's copy of what was sent, by one get; ProfileRefused where it is no proof."""
    copy = google.message_raw(
        grant=grant,
        token=token.secret,
        message_id=sent_id,
        contact=Contact.GET,
        max_bytes=_COPY_BYTES,
    )
    readback.verify(copy, expected(act), asked=sent_id)


def in_sent(google: GoogleGateway, act: Act, reader: Proven) -> ContactResult:
    """One page of Sent by the act's Message-ID, five copies at most, exactly one strict match.

    An empty search proves no absence. A copy that could not be read leaves it unknown.
    """
    matches, others = 0, []
    try:
        page = google.list_sent(
            grant=act.grant,
            token=reader.token.secret,
            rfc822_message_id=str(act.facts.get("message_id", "")),
        )
        found = readback.candidates(page)
        for sent_id in found:
            try:
                at_copy(google, act.grant, reader.token, sent_id, act)
                matches += 1
            except ProfileRefused as error:
                others.append(error.reason)
    except ContactRefused:
        raise
    except CountersignError as error:
        return ContactResult(_UNKNOWN, proofs.reason_of(error), {"field": error.field or ""})
    detail: dict[str, object] = {"candidates": len(found), "matches": matches, "others": others}
    if matches == 1:
        return ContactResult(ContactOutcome.VERIFIED, "sent-copy-matches", detail)
    if matches > 1:
        return ContactResult(_UNKNOWN, "several_candidates", detail)
    return ContactResult(_UNKNOWN, others[0] if others else "not_found", detail)


def expected(act: Act) -> Expected:
    """What has to be found: read from the approved bytes once more."""
    letter = request.require_approved(act.payload, act.facts)
    return Expected(
        thread_id=str(act.facts["thread_id"]),
        message_id=letter.message_id,
        sender=letter.sender,
        to=letter.to,
        subject=letter.subject,
        in_reply_to=letter.in_reply_to,
        references=letter.references,
        text=letter.text,
    )

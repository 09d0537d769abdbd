"""Looks for the server's own copy of a sent message: the same body, the same telling fields.

Servers may add trace fields on top; a changed body, a changed field or a second copy is no proof.
`is_filed` looks within the job that sent, `search` later, under a read-only grant.
"""

from __future__ import annotations

import time

from approvals.types import Contact, ContactOutcome, ContactResult, Grant
from mail import endpoints
from mail.exceptions import TransportError
from mail.gateways.base import TIMEOUT, Mailbox
from mail.models import Account
from mail.registry import transport

#: Fields that must be the same, each exactly once on both sides or absent on both.
FIELDS = (
    b"from",
    b"to",
    b"cc",
    b"subject",
    b"date",
    b"message-id",
    b"in-reply-to",
    b"references",
    b"auto-submitted",
    b"mime-version",
    b"content-type",
    b"content-transfer-encoding",
)
#: Servers file the copy a moment after they said 250.
ATTEMPTS = 3
PAUSE_SECONDS = 1.0

#: How many messages a later look opens at most; more answer to no one id honestly.
CANDIDATES = 5
#: What servers may have added to a message on its way into Sent. What is larger is not opened.
ADDED_BYTES = 64 * 1024
MATCHES = "sent-copy-matches"


def can_look(account: Account) -> bool:
    """Whether a copy in Sent proves anything: only where nobody but the server files it.

    Where mail arrives, a copy may as well have been delivered.
    """
    sent = account.sent_folder.casefold()
    return account.server_files_sent and sent not in ("", "inbox", account.folder.casefold())


def search(account: Account, message_id: str, payload: bytes, grant: Grant) -> ContactResult:
    """One search in Sent by Message-ID, opened read-only: verified for exactly one strict match.

    Anything else is unknown with its reason: nothing found, several, too many, something else
    under that id, or no time. ContactRefused where the grant ends.
    """
    endpoint = endpoints.incoming(account)
    grant.spend(Contact.LIST)
    try:
        with transport(account.protocol).open_mailbox(endpoint) as mailbox:
            mailbox.select(account.sent_folder)
            uids = mailbox.find(message_id)
            if len(uids) > CANDIDATES:
                return _unproved("too_many_candidates", len(uids))
            reason = _judged(mailbox, uids, message_id, payload, grant)
    except TransportError as error:
        return _unproved(error.code)
    if reason != MATCHES:
        return _unproved(reason, len(uids))
    return ContactResult(ContactOutcome.VERIFIED, MATCHES, {"candidates": len(uids)})


def _judged(
    mailbox: Mailbox, uids: tuple[int, ...], message_id: str, payload: bytes, grant: Grant
) -> str:
    """What the candidates say together. One that is not opened may be it, so it counts."""
    sizes = mailbox.sizes(uids) if uids else {}
    answering: list[bytes] = []
    for uid in uids:
        if grant.seconds_left() < TIMEOUT:
            return "timed_out"
        if sizes.get(uid, 0) > len(payload) + ADDED_BYTES:
            answering.append(b"")
            continue
        grant.spend(Contact.GET)
        fetched = mailbox.fetch([uid])
        if fetched.broken is not None or not fetched.messages:
            return "incomplete"
        raw = fetched.messages[0].raw
        if _values(_halves(raw)[0], b"message-id") == [f"<{message_id}>".encode()]:
            answering.append(raw)
    if not answering:
        return "not_found"
    if len(answering) > 1:
        return "several_candidates"
    return MATCHES if is_same(answering[0], payload) else "mismatch"


def _unproved(reason: str, candidates: int | None = None) -> ContactResult:
    detail = {} if candidates is None else {"candidates": candidates}
    return ContactResult(ContactOutcome.UNKNOWN, reason, detail)


def is_filed(account: Account, message_id: str, payload: bytes) -> bool:
    """Whether exactly one copy lies in the account's Sent folder, and it is this one."""
    try:
        with transport(account.protocol).open_mailbox(endpoints.incoming(account)) as mailbox:
            for attempt in range(ATTEMPTS):
                if attempt:
                    time.sleep(PAUSE_SECONDS)
                found = _copies(mailbox, account.sent_folder, message_id)
                if found:
                    return len(found) == 1 and is_same(found[0], payload)
    except TransportError:
        return False
    return False


def is_same(copy: bytes, sent: bytes) -> bool:
    """The same body, and the same fields that count."""
    copied_head, copied_body = _halves(copy)
    sent_head, sent_body = _halves(sent)
    return copied_body == sent_body and all(
        _values(copied_head, name) == _values(sent_head, name) for name in FIELDS
    )


def _copies(mailbox: Mailbox, folder: str, message_id: str) -> list[bytes]:
    mailbox.select(folder)
    return [message.raw for message in mailbox.fetch(mailbox.find(message_id)).messages]


def _halves(raw: bytes) -> tuple[bytes, bytes]:
    head, _, body = raw.replace(b"\r\n", b"\n").partition(b"\n\n")
    return head, body.rstrip(b"\n")


def _values(head: bytes, name: bytes) -> list[bytes]:
    unfolded = head.replace(b"\n ", b" ").replace(b"\n\t", b" ")
    return [
        b" ".join(line.split(b":", 1)[1].split())
        for line in unfolded.split(b"\n")
        if line.lower().startswith(name + b":")
    ]

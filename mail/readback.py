"""Looks for the server's own copy of a sent message: the same body, the same telling fields.

Servers may add trace fields on top; a changed body, a changed field or a second copy is no proof.
"""

from __future__ import annotations

import time

from mail import endpoints
from mail.exceptions import TransportError
from mail.gateways.base import Mailbox
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

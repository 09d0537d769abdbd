"""From a draft's row to the exact bytes that would leave as of now."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

from django.utils import timezone

from guards.exceptions import InvalidInput
from guards.openpgp import Signature
from mail import compose
from mail.models import Account, Message, Outbound
from mail.services import notice_content
from mail.types import ComposedMail, Enclosure

#: Characters of a subject that a reply repeats.
SUBJECT_LIMIT = 800


def reply(
    draft: Outbound,
    *,
    message: Message,
    text: str,
    sign: Callable[[bytes], Signature] | None,
    files: Sequence[Enclosure] = (),
) -> ComposedMail:
    """The reply's exact bytes as of now; the Message-ID was fixed when it was drafted."""
    return compose.compose_reply(
        from_address=sender_address(draft.account),
        from_name=draft.account.identity.name,
        to=tuple(draft.to),
        original=(
            message.subject[:SUBJECT_LIMIT],
            message.message_id or None,
            tuple(message.references),
        ),
        text=text,
        automatic=draft.automatic,
        message_id=draft.message_id,
        date=timezone.now(),
        sign=sign,
        agent=draft.account.identity.handle,
        files=files,
    )


def new(
    draft: Outbound,
    *,
    text: str,
    sign: Callable[[bytes], Signature] | None,
    files: Sequence[Enclosure] = (),
) -> ComposedMail:
    """The exact bytes of a message that answers none."""
    return compose.compose_new(
        from_address=sender_address(draft.account),
        from_name=draft.account.identity.name,
        to=tuple(draft.to),
        subject=draft.subject,
        text=text,
        automatic=draft.automatic,
        message_id=draft.message_id,
        date=timezone.now(),
        sign=sign,
        agent=draft.account.identity.handle,
        files=files,
    )


def notice(draft: Outbound, *, sign: Callable[[bytes], Signature] | None) -> ComposedMail:
    """A notice to the owner, as its rows say it now; encrypted to the key it was written for."""
    told = notice_content.of(draft.pk)
    subject, text = notice_content.read(told)
    return compose.compose_new(
        from_address=sender_address(draft.account),
        from_name=draft.account.identity.name,
        to=tuple(draft.to),
        subject=subject,
        text=text,
        automatic=True,
        message_id=draft.message_id,
        date=timezone.now(),
        sign=sign,
        agent=draft.account.identity.handle,
        encrypt=notice_content.encrypt_to(told),
    )


def sender_address(account: Account) -> str:
    """What outgoing mail carries as From: the account's own address, else its identity's."""
    return account.from_address or account.identity.email


def own_copies(draft: Outbound) -> tuple[str, ...]:
    """Who gets a copy beside those that the message names: the sender, where the account says so.

    A recipient like any other on the envelope, shown to whoever approves, and in no header.
    """
    own = sender_address(draft.account)
    named = {address.lower() for address in draft.to}
    return (own,) if draft.account.bcc_self and own.lower() not in named else ()


def new_message_id(address: str) -> str:
    """An id of ours, without brackets, in the domain of the address that sends."""
    domain = address.rpartition("@")[2]
    if not domain:
        raise InvalidInput(f"{address!r} has no domain to send from", field="from_address")
    return f"{uuid.uuid4()}@{domain.lower()}"

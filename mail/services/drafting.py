"""Drafts of agents: written once per call, and held for a person whatever the reply policy says."""

from __future__ import annotations

from guards.exceptions import InvalidInput
from guards.services.units import unit_of_work
from guards.types import Asker, Subject
from mail import selectors
from mail.models import Message, Outbound
from mail.services import answering, outbound

#: Why such a draft waits, as its hold tells it.
REASON = "agent-draft"


def draft_reply(*, message: Message, text: str, origin: Subject, asker: Asker) -> Outbound:
    """Write a reply to a message's authenticated sender and let it wait for a person.

    The same origin gets the same reply back. ReplyRefused names the rule (`no-write`, no single
    sender, own mail, no SMTP host, `open-drafts`); InvalidInput what cannot be said.
    """
    if not text.strip():
        raise InvalidInput("a reply says something", field="text")
    if "\0" in text:
        raise InvalidInput("a reply has no NUL", field="text")
    outbound.refuse_unless_writable(
        account=message.account, to=[message.sender] if message.sender else []
    )
    with unit_of_work():
        answering.lock_drafts_of(message.account.identity)
        if selectors.outbound_of(origin.type, origin.id) is None:
            answering.refuse_above_open_drafts(message.account.identity)
        draft = outbound.draft_reply(
            message_id=message.pk, text=text, origin=origin, executes=False
        )
        return outbound.hold_draft(outbound_id=draft.pk, asker=asker, reason=REASON)

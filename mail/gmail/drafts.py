"""The draft of a reply as our own rows have it: what may be sent through Gmail, and what is bound.

Database only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from approvals.exceptions import Blocked
from guards.exceptions import NotFound
from guards.types import Subject
from mail.gmail import connected
from mail.gmail.connected import Pair
from mail.gmail.reasons import Reason
from mail.gmail.snapshot import Snapshot
from mail.models import Account, Message, Outbound
from mail.services import composing, enclosures


def load(subject: Subject) -> Outbound:
    """The draft; NotFound."""
    found = (
        Outbound.objects.select_related("account__identity", "in_reply_to")
        .filter(pk=subject.id)
        .first()
    )
    if found is None:
        raise NotFound(f"there is no outgoing message {subject.id}")
    return found


def suits(draft: Outbound) -> bool:
    """Whether this draft is what the profile sends: a plain reply to one, unsigned, no files."""
    return (
        draft.in_reply_to_id is not None
        and len(draft.to) == 1
        and not draft.account.sign_outbound
        and not draft.files.exists()
        and connected.pair(draft.account_id) is not None
    )


def source_of(draft: Outbound) -> Message:
    """The message that a draft answers; Blocked unless the profile can send this draft."""
    message = draft.in_reply_to
    if draft.account.sign_outbound:
        raise Blocked(Reason.MUST_SIGN, field="sign_outbound")
    if draft.files.exists():
        raise Blocked(Reason.ATTACHMENTS, field="files")
    if message is None or len(draft.to) != 1:
        raise Blocked(Reason.NOT_ONE_REPLY, field="to")
    return message


def require_own(draft: Outbound, pair: Pair, source: Snapshot) -> None:
    """Blocked unless what Gmail has fits what was drafted: mailbox, recipient, and source."""
    message = source_of(draft)
    if composing.sender_address(draft.account) != pair.address:
        raise Blocked(Reason.MAILBOX_DIFFERS, field="from")
    if draft.to != [source.sender] or message.sender != source.sender:
        raise Blocked(Reason.RECIPIENT_DIFFERS, field="to")
    if message.message_id != source.message_id:
        raise Blocked(Reason.SOURCE_DIFFERS, field="source")


def bound(draft: Outbound) -> dict[str, object]:
    """What must not move in our own rows, as JSON, in the order in which a drift is named."""
    account, message = draft.account, draft.in_reply_to
    return {
        "account": {"id": account.pk, "revision": account.revision},
        "account_active": account.state != Account.State.DISABLED,
        "identity": account.identity.handle,
        "identity_active": account.identity.is_active,
        "sign_outbound": account.sign_outbound,
        "from": composing.sender_address(account),
        "to": list(draft.to),
        "subject": draft.subject,
        "body": hashlib.sha256(draft.text.encode("utf-8", "surrogatepass")).hexdigest(),
        "files": enclosures.bound(draft),
        "message_id": draft.message_id,
        "thread": draft.thread_id,
        "source": [message.pk, message.sha256, message.sender, message.message_id]
        if message
        else None,
    }


def drifted(subject: Subject, facts: Mapping[str, object]) -> str | None:
    """The first of our own fields that is no longer what was shown, or None."""
    draft = Outbound.objects.filter(pk=subject.id).first()
    if draft is None:
        return "draft"
    if draft.status in Outbound.SETTLED:
        return "status"
    before = facts.get("draft")
    known = before if isinstance(before, Mapping) else {}
    now = bound(draft)
    changed = next((name for name, value in now.items() if known.get(name) != value), None)
    return changed or connected.drifted(facts, connected.pair(draft.account_id))

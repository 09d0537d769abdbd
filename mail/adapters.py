"""What mail plugs into approvals: the act `mail.smtp`, one message through one SMTP session.

`freeze` composes and signs, outside any transaction. What it binds is checked again, field by
field, inside the transaction that consumes the approval, and the account once more before the
contact.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from email.parser import BytesHeaderParser
from email.policy import compat32
from types import MappingProxyType
from typing import Any

from approvals.registry import NOTHING, ActDefaults, Caps
from approvals.types import (
    Act,
    Contact,
    ContactOutcome,
    ContactResult,
    Frozen,
    Grant,
    Purpose,
)
from guards import openpgp
from guards.exceptions import CountersignError, NotFound, SigningRefused
from guards.types import Subject
from mail import endpoints, readback, selectors
from mail.gateways.base import SubmissionResult
from mail.listing import REDACTED
from mail.models import Account, Message, Outbound
from mail.registry import transport
from mail.services import (
    accounts,
    answering,
    composing,
    enclosures,
    notice_content,
    outbound,
)
from mail.types import ComposedMail, Enclosure

#: Seconds of a job's time that its record is left, however long the server takes.
_TO_RECORD = 5.0


class SmtpKind(ActDefaults):
    """Mail by SMTP. It ends `accepted` (250 after DATA), `failed`, `unknown`, or read back."""

    name = outbound.KIND
    label = "Mail"
    outcomes = frozenset(ContactOutcome)
    #: A later look searches Sent once and opens what it finds; nothing else is counted.
    caps: Caps = MappingProxyType(
        {Purpose.RECOVER: {Contact.LIST: 1, Contact.GET: readback.CANDIDATES}}
    )

    def freeze(self, subject: Subject, grant: Grant = NOTHING) -> Frozen:
        """Compose the exact bytes now; signed where the account signs, never less (DES-020)."""
        draft = _draft(subject)
        accounts.refuse_inactive(draft.account)
        composed = _composed(draft, _signer(draft.account), enclosures.opened(draft))
        facts = {
            **_bound(draft),
            "envelope_from": composed.envelope_from,
            "recipients": list(composed.recipients),
            "bcc": list(composing.own_copies(draft)),
            "mime_sha256": hashlib.sha256(composed.raw).hexdigest(),
        }
        return Frozen(composed.raw, facts, _preview(draft, composed))

    def recheck_in_writer(self, subject: Subject, facts: Mapping[str, object]) -> str | None:
        """The first bound field that is no longer what was shown; database only."""
        draft = Outbound.objects.filter(pk=subject.id).first()
        if draft is None:
            return "draft"
        if draft.status in Outbound.SETTLED:
            return "status"
        now = _bound(draft)
        return next((name for name in now if facts.get(name) != now[name]), None)

    def contact(self, act: Act) -> ContactResult:
        """One SMTP session with the frozen bytes. What prevents it before DATA is `failed`."""
        facts = act.facts
        try:
            account = accounts.usable(_account_id(facts))
            if account.revision != facts.get("account_revision"):
                return ContactResult(ContactOutcome.FAILED, "account-changed")
            endpoint = endpoints.outgoing(account)
            submission = transport(account.protocol).submission
        except CountersignError as error:
            return ContactResult(ContactOutcome.FAILED, error.code)
        result = submission.send(
            endpoint,
            envelope_from=str(facts["envelope_from"]),
            recipients=_texts(facts["recipients"]),
            copies=_texts(facts.get("bcc")),
            payload=act.payload,
            seconds=act.grant.seconds_left() - _TO_RECORD,
        )
        return ContactResult(
            ContactOutcome(result.outcome.value), str(result.reason), _told(result)
        )

    def readback(self, act: Act) -> ContactResult | None:
        """Find the server's own copy in Sent. A copy that we would file proves nothing (None)."""
        account = _that_files_sent(act)
        if account is None:
            return None
        if not readback.is_filed(account, str(act.facts["message_id"]), act.payload):
            return None
        return ContactResult(ContactOutcome.VERIFIED, readback.MATCHES)

    def look_again(self, act: Act) -> ContactResult | None:
        """Search Sent once more, read-only; None where only we would have filed a copy."""
        account = _that_files_sent(act)
        if account is None:
            return None
        return readback.search(account, str(act.facts["message_id"]), act.payload, act.grant)


def _that_files_sent(act: Act) -> Account | None:
    """The account, where its server keeps a copy of its own of what it is given."""
    account = Account.objects.filter(pk=_account_id(act.facts)).first()
    return account if account is not None and readback.can_look(account) else None


def _composed(
    draft: Outbound,
    sign: Callable[[bytes], openpgp.Signature] | None,
    files: Sequence[Enclosure],
) -> ComposedMail:
    if draft.origin_type == answering.NOTICE:
        return composing.notice(draft, sign=sign)
    if draft.in_reply_to is None:
        return composing.new(draft, text=draft.text, sign=sign, files=files)
    return composing.reply(
        draft, message=draft.in_reply_to, text=draft.text, sign=sign, files=files
    )


def _bound(draft: Outbound) -> dict[str, object]:
    """The fields that must not move between what a person saw and what leaves. JSON only."""
    account, message = draft.account, draft.in_reply_to
    told = draft.origin_type == answering.NOTICE
    return {
        **({"notice": notice_content.bound(notice_content.of(draft.pk))} if told else {}),
        "account_id": account.pk,
        "account_revision": account.revision,
        "account_active": account.state != Account.State.DISABLED,
        "identity": account.identity.handle,
        "identity_active": account.identity.is_active,
        "from": composing.sender_address(account),
        "from_name": account.identity.name,
        "signed_by": account.identity.openpgp_fingerprint if account.sign_outbound else "",
        "to": list(draft.to),
        "subject": draft.subject,
        "text_sha256": hashlib.sha256(draft.text.encode()).hexdigest(),
        "files": enclosures.bound(draft),
        "message_id": draft.message_id,
        "automatic": draft.automatic,
        "thread": draft.thread_id,
        "source": message.pk if message else None,
        "source_sha256": message.sha256 if message else "",
        "source_sender": message.sender if message else "",
        "in_reply_to": message.message_id if message else "",
        "references": list(message.references) if message else [],
    }


#: Headers that a preview shows in fields of their own; the rest is shown as it leaves.
_SHOWN = frozenset({"from", "to", "subject", "date", "message-id", "in-reply-to", "references"})


def _preview(draft: Outbound, composed: ComposedMail) -> dict[str, Any]:
    """Everything that a person reads before saying yes; the console lays it out."""
    account, message = draft.account, draft.in_reply_to
    leaving = BytesHeaderParser(policy=compat32).parsebytes(composed.raw)
    return {
        "from": composing.sender_address(account),
        "from_name": account.identity.name,
        "to": list(composed.recipients),
        "cc": [],
        "bcc": list(composing.own_copies(draft)),
        "reply_to": _reply_to(message),
        "subject": composed.subject,
        "date": leaving["Date"] or "",
        "message_id": composed.message_id,
        "in_reply_to": bare_ids(leaving["In-Reply-To"]),
        "references": bare_ids(leaving["References"]),
        "text": composed.text,
        "attachments": enclosures.bound(draft),
        "signed": account.sign_outbound,
        "account": account.name,
        "thread": draft.thread_id,
        "automatic": draft.automatic,
        "headers": [
            f"{name}: {' '.join(str(value).split())}"
            for name, value in leaving.items()
            if name.lower() not in _SHOWN
        ],
        "mime_sha256": hashlib.sha256(composed.raw).hexdigest(),
        "size": len(composed.raw),
        "source": source_preview(message) if message is not None else None,
    }


def _reply_to(message: Message | None) -> list[str]:
    """Where the message answered would have its answers, which counts for nothing (W18)."""
    if message is None:
        return []
    return list(message.recipients.filter(kind="reply-to").values_list("address", flat=True))


def source_preview(message: Message) -> dict[str, Any]:
    """What is answered; covered where its sender may not be read and nobody revealed it."""
    shown = message.pk in selectors.shown([message])
    return {
        "message_pk": message.pk,
        "from": message.sender,
        "from_name": message.sender_name if shown else "",
        "subject": message.subject if shown else REDACTED,
        "date": message.date.isoformat() if message.date else None,
        "message_id": message.message_id,
        "text": message.text[:4000] if shown else REDACTED,
        "trust_level": message.trust_level,
        "trust_reason": message.trust_reason,
        "observed_at": message.received_at.isoformat(),
    }


def bare_ids(header: str | None) -> list[str]:
    """The Message-IDs of a threading header of ours, without brackets."""
    return [one.strip("<>") for one in (header or "").split()]


def _signer(account: Account) -> Callable[[bytes], openpgp.Signature] | None:
    if not account.sign_outbound:
        return None
    identity = account.identity
    if not account.preserves_mime:
        raise SigningRefused(
            f"account {account.name} signs, but its transport changes MIME: signatures would break",
            field="preserves_mime",
        )
    if not (identity.openpgp_fingerprint and identity.gpg_home):
        raise SigningRefused(
            f"account {account.name} signs, but {identity.handle} has no key: set gpg_home and "
            "openpgp_fingerprint",
            field="openpgp_fingerprint",
        )
    return lambda payload: openpgp.sign(
        home=identity.gpg_home,
        fingerprint=identity.openpgp_fingerprint,
        passphrase_ref=identity.passphrase_ref,
        payload=payload,
    )


def _draft(subject: Subject) -> Outbound:
    draft = (
        Outbound.objects.select_related("account__identity", "in_reply_to")
        .filter(pk=subject.id)
        .first()
    )
    if draft is None:
        raise NotFound(f"there is no outgoing message {subject.id}")
    return draft


def _account_id(facts: Mapping[str, object]) -> int:
    found = facts.get("account_id")
    return found if isinstance(found, int) else 0


def _texts(value: object) -> Sequence[str]:
    return [str(entry) for entry in value] if isinstance(value, list | tuple) else []


def _told(result: SubmissionResult) -> dict[str, object]:
    """What the server said. Where it refused some recipients, the others are named as well."""
    some = {"taken": list(result.taken)} if result.refused and result.taken else {}
    return {
        "code": result.code,
        "reply": result.reply,
        "refused": dict(result.refused),
        "final_dot_sent": result.final_dot_sent,
        **some,
    }

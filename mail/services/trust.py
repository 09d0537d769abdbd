"""Recomputes verdicts when what they rest on changed; the older ones stay beside them (DES-002).

A verdict that changes is shown, and never starts a pipeline by itself.
"""

from __future__ import annotations

from collections.abc import Iterable

import structlog
from django.db.models import Q, QuerySet

from guards.exceptions import CountersignError
from guards.models import Contact
from guards.services.units import unit_of_work
from guards.types import SYSTEM, TrustReason, TrustVerdict
from mail import selectors
from mail.models import Message
from mail.services import records
from teams.services.events import append_event

log = structlog.get_logger(__name__)

#: Verdicts that no key can change.
_WITHOUT_KEYS = (
    TrustReason.UNSIGNED,
    TrustReason.SIGNATURE_NOT_TOP_LEVEL,
    TrustReason.MALFORMED_SIGNED,
    TrustReason.ENCRYPTED,
    TrustReason.NO_IDENTITY,
    TrustReason.NO_SIGNATURE_DATA,
)


def recompute_for_key(*, contact_id: int, fingerprint: str) -> int:
    """After a key was pinned, removed or revoked: every signed message it may speak about.

    Those are mail from the contact's addresses, mail that this key signed, and mail signed by keys
    that nobody had pinned. Returns how many verdicts changed.
    """
    contact = Contact.objects.filter(pk=contact_id).first()
    addresses = _addresses(contact) if contact is not None else []
    signed = Message.objects.exclude(trust_reason__in=_WITHOUT_KEYS)
    concerned = signed.filter(
        Q(sender__in=addresses)
        | Q(trust_reason=TrustReason.UNPINNED_KEY)
        | Q(trust_evidence__signer=fingerprint)
    )
    return _recompute(concerned, "key-changed")


def recompute_unverified() -> int:
    """After GnuPG was missing or hung: the messages that it could not be asked about."""
    return _recompute(
        Message.objects.filter(trust_reason=TrustReason.VERIFIER_UNAVAILABLE), "verifier-back"
    )


def _recompute(messages: QuerySet[Message], cause: str) -> int:
    changed = 0
    for message_id in list(messages.order_by("pk").values_list("pk", flat=True)):
        message = Message.objects.select_related("account__identity").get(pk=message_id)
        try:
            verdict = selectors.reassess(message).trust
        except CountersignError as error:
            log.warning("mail.not_reassessed", message=message_id, reason=error.code)
            continue
        changed += _keep(message, verdict, cause)
    return changed


def _keep(message: Message, verdict: TrustVerdict, cause: str) -> bool:
    """Append the verdict and make it the latest, if it says anything new."""
    old = (message.trust_level, message.trust_reason)
    new = (str(verdict.level), str(verdict.reason))
    if old == new:
        return False
    with unit_of_work():
        moved = Message.objects.filter(
            pk=message.pk, trust_level=old[0], trust_reason=old[1]
        ).update(
            trust_level=new[0],
            trust_reason=new[1],
            trust_evidence=records.evidence_as_json(verdict.evidence),
        )
        if not moved:
            return False
        records.trust_record(message, verdict, cause).save()
        append_event(
            kind="mail.trust-changed",
            subject=records.subject_of(message),
            actor=str(SYSTEM),
            facts={"old": old[0], "new": new[0], "reason": new[1], "cause": cause},
        )
    return True


def _addresses(contact: Contact) -> Iterable[str]:
    return [contact.address, *contact.aliases.values_list("address", flat=True)]

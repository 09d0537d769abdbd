"""The act `mail.gmail`: one exact reply through Gmail, one POST, and a strict read-back (ADR-016).

Everything that decides is looked at three times: when it is frozen for a person to read, when the
approval is consumed, and in the last ten seconds before the contact. After the mark nothing but
the strict read-back makes it `verified`; everything else is `unknown`, and nothing is sent again.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from django.utils import timezone

from approvals.exceptions import Blocked, ContactRefused
from approvals.registry import NOTHING, ActDefaults, Caps
from approvals.types import (
    Act,
    BoundConnection,
    Contact,
    ContactOutcome,
    ContactResult,
    Frozen,
    Grant,
    Purpose,
)
from guards.exceptions import CountersignError
from guards.types import Subject
from mail.exceptions import ProfileRefused
from mail.gateways.google.base import GoogleGateway, SendAnswer, SendKind
from mail.gmail import (
    connected,
    drafts,
    exact_mime,
    looking,
    mime_check,
    proofs,
    request,
    snapshot,
)
from mail.gmail.held import Held, HeldTokens
from mail.gmail.preview import preview
from mail.gmail.reasons import Reason
from mail.services import accounts, outbound

_UNKNOWN, _VERIFIED = ContactOutcome.UNKNOWN, ContactOutcome.VERIFIED


class GmailKind(ActDefaults):
    """A reply through Gmail. It ends `verified` in the sender's Sent mailbox, or `unknown`."""

    name = outbound.GMAIL
    label = "Reply through Gmail"
    outcomes = frozenset({_VERIFIED, _UNKNOWN})
    caps: Caps = MappingProxyType(
        {
            Purpose.CONNECT: {Contact.REFRESH: 2, Contact.USERINFO: 2, Contact.PROFILE: 1},
            Purpose.PREVIEW: {
                Contact.REFRESH: 1,
                Contact.USERINFO: 1,
                Contact.PROFILE: 1,
                Contact.READ: 2,
            },
            Purpose.EXECUTE: {
                Contact.REFRESH: 2,
                Contact.USERINFO: 2,
                Contact.PROFILE: 1,
                Contact.READ: 2,
                Contact.POST: 1,
                Contact.GET: 1,
            },
            Purpose.RECOVER: {
                Contact.REFRESH: 1,
                Contact.USERINFO: 1,
                Contact.PROFILE: 1,
                Contact.LIST: 1,
                Contact.GET: 5,
            },
        }
    )
    by_policy = False
    via = frozenset({"console"})

    def __init__(self, google: Callable[[], GoogleGateway]) -> None:
        self._ask = google
        self._held = HeldTokens()

    @property
    def _google(self) -> GoogleGateway:
        """Google as it is registered at this moment."""
        return self._ask()

    def connections(self, subject: Subject, purpose: Purpose) -> Sequence[BoundConnection]:
        """Reading alone to look, both to send."""
        account_id = drafts.load(subject).account_id
        if purpose is not Purpose.EXECUTE:
            return [connected.bind(connected.reader_of(account_id))]
        pair = connected.required(account_id)
        return [connected.bind(pair.read), connected.bind(pair.send)]

    def freeze(self, subject: Subject, grant: Grant = NOTHING) -> Frozen:
        """Look at source and thread, and fix the exact bytes: at most 5 contacts.

        Blocked names what does not hold.
        """
        draft = drafts.load(subject)
        with proofs.blocking():
            accounts.refuse_inactive(draft.account)
            message, pair = drafts.source_of(draft), connected.required(draft.account_id)
            exact_mime.normalised(draft.text)
            reader = proofs.reader(self._google, grant, pair.read)
            source = looking.at_source(self._google, grant, reader.token, message.message_id)
            observed_at = timezone.now()
            drafts.require_own(draft, pair, source)
            reply = exact_mime.answer(
                source,
                sender=pair.address,
                message_id=draft.message_id,
                date=observed_at,
                text=draft.text,
            )
            mime = exact_mime.build(reply)
            payload = request.build(mime, source.thread_id)
            facts = {
                **mime_check.read(mime).facts(),
                **pair.facts(),
                "account_id": draft.account_id,
                "mime_sha256": hashlib.sha256(mime).hexdigest(),
                "request_sha256": hashlib.sha256(payload).hexdigest(),
                "thread_id": source.thread_id,
                "source": source.facts(),
                "source_digest": source.digest,
                "observed_at": observed_at.isoformat(),
                "preview_proof": reader.facts(),
                "draft": drafts.bound(draft),
            }
            request.require_approved(payload, facts)
        return Frozen(payload, facts, preview(draft, reply, mime, source, observed_at))

    def recheck_in_writer(self, subject: Subject, facts: Mapping[str, object]) -> str | None:
        """The first bound field of our own rows that is no longer what was shown."""
        return drafts.drifted(subject, facts)

    def observe(self, act: Act) -> float | None:
        """Fresh tokens, both identities, the mailbox, and the source: at most 7 contacts.

        Blocked names what drifted; then nothing is posted.
        """
        self._held.forget(act.effect_id)
        with proofs.blocking():
            request.require_approved(act.payload, act.facts)
            pair = connected.required(act.facts.get("account_id"))
            changed = connected.drifted(act.facts, pair)
            if changed is not None:
                raise Blocked(Reason.DRIFTED, field=changed)
            reads, sends = proofs.both(self._google, act.grant, pair.read, pair.send)
            proofs.require_reviewed(reads, pair.read)
            proofs.require_reviewed(sends, pair.send)
            observed = time.monotonic()
            now = looking.at_thread(self._google, act.grant, reads.token, act.facts)
            drift = snapshot.drifted(looking.approved_source(act.facts), now)
            if drift is not None:
                raise Blocked(Reason.DRIFTED, field=drift)
        self._held.keep(act.effect_id, Held(reads, sends))
        return observed

    def contact(self, act: Act) -> ContactResult:
        """The one POST of the approved bytes. Only a whole 200 of the right thread goes on."""
        held = self._held.get(act.effect_id)
        if held is None:
            return ContactResult(_UNKNOWN, Reason.TOKEN_GONE, {"posted": False})
        try:
            request.require_approved(act.payload, act.facts)
            answer = self._google.send(
                grant=act.grant, token=held.sends.token.secret, request_json=act.payload
            )
        except (ProfileRefused, ContactRefused) as error:
            detail = {"posted": False, "field": error.field or ""}
            return ContactResult(_UNKNOWN, error.reason, detail)
        return self._taken(act, held, answer)

    def readback(self, act: Act) -> ContactResult | None:
        """Gmail's own copy, fetched once by the id that the POST brought."""
        held = self._held.forget(act.effect_id)
        if held is None or not held.sent_id:
            return None
        try:
            looking.at_copy(self._google, act.grant, held.reads.token, held.sent_id, act)
        except CountersignError as error:
            return ContactResult(
                _UNKNOWN, proofs.reason_of(error), {"posted": True, "field": error.field or ""}
            )
        return ContactResult(_VERIFIED, "sent-copy-matches")

    def look_again(self, act: Act) -> ContactResult | None:
        """Look in Sent for an act of unknown outcome, reading only: at most 9 contacts."""
        try:
            with proofs.blocking():
                reader = proofs.reader(self._google, act.grant, connected.reading(act.facts))
        except Blocked as blocked:
            return ContactResult(_UNKNOWN, blocked.reason, {"field": blocked.field or ""})
        return looking.in_sent(self._google, act, reader)

    def _taken(self, act: Act, held: Held, answer: SendAnswer) -> ContactResult:
        """What a POST's answer proves. Nothing but a whole 200 leads to the read-back."""
        evidence: dict[str, object] = {
            "posted": answer.kind is not SendKind.NOT_BEGUN,
            "status": answer.status,
            "read": held.reads.facts(),
            "send": held.sends.facts(),
        }
        if answer.kind is not SendKind.TAKEN or answer.status != 200:
            return ContactResult(_UNKNOWN, answer.reason, {**evidence, "field": answer.field})
        if answer.thread_id != act.facts.get("thread_id"):
            return ContactResult(
                _UNKNOWN, Reason.THREAD_DIFFERS, {**evidence, "field": "thread_id"}
            )
        held.sent_id = answer.message_id
        return ContactResult(ContactOutcome.ACCEPTED, answer.reason, evidence)

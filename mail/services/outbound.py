"""Outgoing mail: drafted once per origin, submitted once, and its status follows its one effect.

A reply goes to the authenticated From and to nobody else (W18). Automatic mail passes the loop
guard and the caps: above the hourly one it waits in the queue, it is never dropped (invariant 22).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import structlog
from django.db import IntegrityError
from django.utils import timezone

from approvals.models import Effect, Hold
from approvals.services import approvals, effects, holds
from approvals.types import Request
from guards.exceptions import CountersignError, NotFound
from guards.models import Identity
from guards.selectors import contact_book
from guards.services import decisions
from guards.services.units import unit_of_work
from guards.types import SYSTEM, Asker, Judgement, Subject, Verdict
from mail.exceptions import ReplyRefused
from mail.gmail import drafts as gmail_drafts
from mail.models import Account, Message, Outbound, OutboundFile
from mail.services import accounts, answering, composing, enclosures, records
from mail.signals import outbound_changed
from mail.types import Enclosure
from teams.services.events import append_event

log = structlog.get_logger(__name__)

KIND = "mail.smtp"
#: The kind of a reply whose account is connected to Gmail for reading and for sending.
GMAIL = "mail.gmail"
#: Every kind of act that an outgoing message may become.
KINDS = frozenset({KIND, GMAIL})
#: After so long a submission that has no effect was cut off before it could have one.
_CUT_OFF_AFTER = timedelta(minutes=10)

Status = Outbound.Status


def draft_reply(
    *,
    message_id: int,
    text: str,
    origin: Subject,
    executes: bool,
    files: Sequence[Enclosure] = (),
) -> Outbound:
    """Write the one reply of an origin to a message's authenticated sender.

    An origin that has one already gets that one back; while it is still a draft its text and its
    files are replaced. `executes` says that the reply answers a pipeline that ran a stage: then the
    daily cap does not count. ReplyRefused names the rule; InvalidInput what cannot be said or sent.
    """
    message = _message(message_id)
    enclosed = enclosures.keep(files)
    earlier = _of_origin(origin)
    if earlier is not None:
        return _rewrite(earlier, text, executes, enclosed)
    answering.refuse_unless_answerable(message, origin)
    draft = _begun(message.account, message.sender, "", origin)
    draft.in_reply_to, draft.thread_id = message, message.thread_id
    draft.automatic, draft.executes = origin.type in answering.PIPELINES, executes
    composed = composing.reply(draft, message=message, text=text, sign=None)
    draft.subject = records.storable(composed.subject, 10_000)
    draft.text = records.storable(composed.text, records.TEXT_LIMIT)
    capped = message if draft.automatic and not executes else None
    return _insert(draft, enclosed, capped=capped)


def draft_new(
    *,
    account: Account,
    to: str,
    subject: str,
    text: str,
    origin: Subject,
    files: Sequence[Enclosure] = (),
) -> Outbound:
    """Write the one message of an origin that answers none, to somebody who may be written to.

    An origin that has one already gets that one back, as it is. It counts as automatic: above the
    hourly cap it waits. ReplyRefused (`no-write`, `no-smtp`) or InvalidInput, with the field.
    """
    earlier = _of_origin(origin)
    if earlier is not None:
        return earlier
    if not account.smtp_host:
        raise ReplyRefused(
            f"account {account.name} has no SMTP host: set one to send from it", rule="no-smtp"
        )
    draft = _begun(account, to, subject.strip(), origin)
    composed = composing.new(draft, text=text, sign=None)
    _judged_recipients(draft.account, draft.to)
    draft.text = records.storable(composed.text, records.TEXT_LIMIT)
    return _insert(draft, enclosures.keep(files), capped=None)


def draft_notice(*, account: Account, to: str, subject: str, origin: Subject) -> Outbound:
    """Write the message that carries a notice to the owner. Joins the caller's unit of work.

    Its text is made when it is frozen and lies in its approval only; `subject` names nothing.
    """
    return _insert(_begun(account, to, subject, origin), (), capped=None)


def submit(*, outbound_id: UUID | str, asker: Asker) -> Outbound:
    """Send a draft on its way: held for a person, or through its one effect, by the reply policy.

    Anything but a draft is returned as it is. What prevents the effect is the outbound's `reason`,
    with status `failed`: certain, since nothing was contacted.
    """
    return _submit(_outbound(outbound_id), asker, Status.DRAFT)


def hold_draft(*, outbound_id: UUID | str, asker: Asker, reason: str) -> Outbound:
    """Let a draft wait for a person, whatever the reply policy says. Held twice is held once."""
    outbound = _outbound(outbound_id)
    if outbound.status != Status.DRAFT:
        return outbound
    return _hold(outbound, asker, Status.DRAFT, reason)


def refuse_unless_writable(*, account: Account, to: Sequence[str]) -> None:
    """ReplyRefused with its rule unless the account is on and its identity holds `w` for each."""
    accounts.refuse_inactive(account)
    _judged_recipients(account, to)


def release_queued() -> int:
    """Submit what waits for the hourly cap, oldest first, as far as it allows; how many went."""
    gone = 0
    for waiting in Outbound.objects.filter(status=Status.QUEUED).order_by("created_at"):
        gone += _submit(waiting, SYSTEM, Status.QUEUED).status != Status.QUEUED
    return gone


def settle_cut_off() -> int:
    """Cancel submissions whose process ended before there was an effect: nothing left. How many."""
    stale = Outbound.objects.filter(
        status=Status.SENDING, effect=None, submitted_at__lt=timezone.now() - _CUT_OFF_AFTER
    )
    return sum(
        move(outbound, Status.CANCELLED, from_states=(Status.SENDING,), reason="interrupted")
        for outbound in stale
        if not _may_have_left(outbound)
    )


def follow_effect(*, effect: Effect) -> None:
    """Take over what became of the effect: inside its own transaction."""
    outbound = Outbound.objects.filter(pk=effect.subject_id).first()
    if outbound is None:
        return
    status = _BY_PHASE[Effect.Phase(effect.phase)]
    before = (*_OPEN, Status.ACCEPTED) if status == Status.VERIFIED else _OPEN
    Outbound.objects.filter(pk=outbound.pk, effect=None).update(effect=effect)
    move(outbound, status, from_states=before, reason=effect.reason)


def follow_hold(*, hold: Hold) -> None:
    """Take over a person's no: inside its own transaction. A yes shows as an effect."""
    outbound = Outbound.objects.filter(pk=hold.subject_id).first()
    ending = _BY_HOLD.get(Hold.State(hold.state))
    if outbound is not None and ending is not None:
        status, reason = ending
        move(outbound, status, from_states=(Status.HELD,), reason=reason)


def move(
    outbound: Outbound, status: str, *, from_states: tuple[str, ...], reason: str = ""
) -> bool:
    """One move of a status by conditional UPDATE, announced; False where it was elsewhere."""
    with unit_of_work():
        outbound.refresh_from_db(fields=["status"])
        old = outbound.status
        if old not in from_states or old == status:
            return False
        settled_at = timezone.now() if status in Outbound.SETTLED else None
        moved = Outbound.objects.filter(pk=outbound.pk, status=old).update(
            status=status, reason=reason[:64], settled_at=settled_at
        )
        if not moved:
            return False
        outbound.refresh_from_db()
        _tell(outbound, old, _EVENTS.get(Status(status)))
    return True


def subject_of(outbound: Outbound) -> Subject:
    """How effects, decisions and events name an outgoing message."""
    return Subject("mail.outbound", str(outbound.pk))


_BY_PHASE = {
    Effect.Phase.INTENT: Status.SENDING,
    Effect.Phase.MARKED: Status.SENDING,
    Effect.Phase.ACCEPTED: Status.ACCEPTED,
    Effect.Phase.VERIFIED: Status.VERIFIED,
    Effect.Phase.FAILED: Status.FAILED,
    Effect.Phase.UNKNOWN: Status.UNKNOWN,
    Effect.Phase.CANCELLED: Status.CANCELLED,
}
#: States that an effect may still move.
_OPEN = (Status.DRAFT, Status.QUEUED, Status.HELD, Status.SENDING)
_BY_HOLD = {
    Hold.State.REJECTED: (Status.REJECTED, "rejected"),
    Hold.State.CHANGES_REQUESTED: (Status.REJECTED, "changes-requested"),
    Hold.State.WITHDRAWN: (Status.CANCELLED, "withdrawn"),
}
_EVENTS = {
    Status.HELD: "outbound.held",
    Status.QUEUED: "outbound.queued",
    **dict.fromkeys(Outbound.SETTLED, "outbound.settled"),
}


def _submit(outbound: Outbound, asker: Asker, from_state: str) -> Outbound:
    if outbound.status != from_state:
        return outbound
    identity, ours = outbound.account.identity, from_state
    try:
        judgement = _judgement(outbound)
        if answering.needs_a_person(outbound):
            return _hold(outbound, asker, from_state, "reply-policy")
        if not _take_place(outbound, identity, from_state):
            return outbound
        ours = Status.SENDING  # only now: before, another process may be the one that sends
        return _send(outbound, asker, judgement)
    except CountersignError as error:
        log.warning("mail.not_sent", outbound=str(outbound.pk), reason=error.code)
        move(outbound, Status.FAILED, from_states=(ours,), reason=error.code)
        return outbound


def _send(outbound: Outbound, asker: Asker, judgement: Judgement) -> Outbound:
    effect = approvals.approve_by_policy(request=_request(outbound, asker), judgement=judgement)
    effects.dispatch(effect_id=effect.pk)
    outbound.refresh_from_db()
    return outbound


def _hold(outbound: Outbound, asker: Asker, from_state: str, reason: str) -> Outbound:
    with unit_of_work():
        mine = Outbound.objects.select_for_update().filter(pk=outbound.pk, status=from_state)
        if mine.first() is None:  # another process has just had it held
            outbound.refresh_from_db()
            return outbound
        held = holds.hold(request=_request(outbound, asker), reason=reason)
        Outbound.objects.filter(pk=outbound.pk).update(hold=held, submitted_at=timezone.now())
        move(outbound, Status.HELD, from_states=(from_state,), reason=reason)
    return outbound


def _take_place(outbound: Outbound, identity: Identity, from_state: str) -> bool:
    """Under the identity's lock: a place below the hourly cap, or the queue."""
    with unit_of_work():
        Identity.objects.select_for_update().get(pk=identity.pk)
        if outbound.automatic and answering.is_hour_full(identity):
            move(outbound, Status.QUEUED, from_states=(Status.DRAFT,), reason="rate-limit")
            return False
        if not move(outbound, Status.SENDING, from_states=(from_state,)):
            return False
        Outbound.objects.filter(pk=outbound.pk).update(submitted_at=timezone.now())
    return True


def _judgement(outbound: Outbound) -> Judgement:
    """By right of its origin; anybody else needs `w` for each recipient."""
    accounts.refuse_inactive(outbound.account)
    return answering.by_right(outbound) or _judged_recipients(outbound.account, outbound.to)


def _judged_recipients(account: Account, to: Sequence[str]) -> Judgement:
    """ReplyRefused unless the identity may write to every recipient."""
    book, identity_id = contact_book(), account.identity_id
    judged = decisions.decide_send(
        permissions={address: book.rwx(identity_id, address) for address in to}
    )
    if judged.verdict is not Verdict.ALLOW:
        raise ReplyRefused(
            f"{judged.rule}: not every recipient may be written to", rule=judged.rule
        )
    return judged


def _begun(account: Account, to: str, subject: str, origin: Subject) -> Outbound:
    """A message of an origin, not written yet. It counts as automatic and as one that works."""
    return Outbound(
        account=account,
        origin_type=origin.type,
        origin_id=origin.id,
        to=[to],
        subject=subject,
        message_id=composing.new_message_id(composing.sender_address(account)),
        automatic=True,
        executes=True,
    )


def _insert(
    draft: Outbound, enclosed: Sequence[OutboundFile], *, capped: Message | None
) -> Outbound:
    """Write a draft with its files, once per origin; `capped` is what the daily caps count by."""
    try:
        with unit_of_work():
            if capped is not None:
                answering.refuse_above_daily_caps(capped)
            draft.save(force_insert=True)
            enclosures.write(draft, enclosed)
            _tell(draft, "", "outbound.composed")
    except IntegrityError:
        crossed = _of_origin(Subject(draft.origin_type, draft.origin_id))
        if crossed is None:
            raise
        return crossed
    return draft


def _rewrite(
    outbound: Outbound, text: str, executes: bool, enclosed: Sequence[OutboundFile]
) -> Outbound:
    """While it is still a draft, an origin's one reply may say something else."""
    if outbound.status != Status.DRAFT or outbound.in_reply_to is None:
        return outbound
    composed = composing.reply(outbound, message=outbound.in_reply_to, text=text, sign=None)
    with unit_of_work():
        rewritten = Outbound.objects.filter(pk=outbound.pk, status=Status.DRAFT).update(
            text=records.storable(composed.text, records.TEXT_LIMIT), executes=executes
        )
        if rewritten:
            enclosures.write(outbound, enclosed)
    outbound.refresh_from_db()
    return outbound


def _request(outbound: Outbound, asker: Asker) -> Request:
    beside = outbound.origin_type == answering.ACKNOWLEDGEMENT
    source = None if beside else outbound.in_reply_to
    return Request(
        kind=KIND if beside or not gmail_drafts.suits(outbound) else GMAIL,
        subject=subject_of(outbound),
        requested_by=asker,
        source=records.subject_of(source) if source is not None else None,
        account=Subject("mail.account", str(outbound.account_id)),
    )


def _may_have_left(outbound: Outbound) -> bool:
    subject = subject_of(outbound)
    return any(Effect.objects.may_have_left(kind, subject).exists() for kind in KINDS)


def _of_origin(origin: Subject) -> Outbound | None:
    return (
        Outbound.objects.select_related("account__identity", "in_reply_to")
        .filter(origin_type=origin.type, origin_id=origin.id)
        .first()
    )


def _message(message_id: int) -> Message:
    message = Message.objects.select_related("account__identity").filter(pk=message_id).first()
    if message is None:
        raise NotFound(f"there is no message {message_id}")
    return message


def _outbound(outbound_id: UUID | str) -> Outbound:
    outbound = (
        Outbound.objects.select_related("account__identity", "in_reply_to")
        .filter(pk=outbound_id)
        .first()
    )
    if outbound is None:
        raise NotFound(f"there is no outgoing message {outbound_id}")
    return outbound


def _tell(outbound: Outbound, old: str, kind: str | None) -> None:
    outbound_changed.send(sender=Outbound, outbound=outbound, old=old)
    if kind is None:
        return
    append_event(
        kind=kind,
        subject=subject_of(outbound),
        actor=f"{outbound.origin_type}:{outbound.origin_id}",
        facts={"status": outbound.status, "reason": outbound.reason, "old": old},
    )

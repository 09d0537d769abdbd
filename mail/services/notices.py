"""Notices to the owner: what waits for a person, told once while it is fresh, and no more.

Each notice is one outgoing message through the usual way: one effect, with its Decision, under the
caps. It is claimed first (rows, one commit), then the snapshots are taken, then it is submitted. A
notice never makes a hold, so no notice is ever about a notice.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import structlog
from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone

from approvals.models import Approval, Hold
from approvals.services import holds
from guards.exceptions import AlreadyDecided, CountersignError
from guards.services.units import unit_of_work
from guards.types import SYSTEM, Subject
from mail import notice_text, owner_channel
from mail.models import Account, MailedAnswer, NoticeItem, Outbound, OwnerNotice
from mail.owner_channel import Channel, Mode
from mail.services import answering, notice_content, outbound
from mail.types import AnswerReason, Verb
from teams.services.events import append_event

log = structlog.get_logger(__name__)

#: How long a snapshot that a notice showed may be answered.
VALIDITY = timedelta(hours=24)
#: Drafts that one notice shows; more are counted in it and shown by the next one.
MOST_ITEMS = 10
#: Notices about one draft, in all; then it stands in the console only.
MOST_PER_HOLD = 7
#: Notices about one draft within `VALIDITY` because it changed or because the last did not leave.
MOST_EXTRA = 3
#: Refused answers that are told of within a day.
MOST_REFUSALS = 10
#: How long to wait after a notice that certainly did not leave.
_RETRY = timedelta(minutes=10)
#: A claim of this age whose process is gone is given up.
_CUT_OFF_AFTER = timedelta(minutes=5)
#: How many waiting drafts are looked at.
_MOST_HOLDS = 500

_NOT_SENT = frozenset({Outbound.Status.FAILED, Outbound.Status.CANCELLED, Outbound.Status.REJECTED})
#: Snapshots that ended because a person looked, not because the draft became another one.
_NO_CHANGE = frozenset({"reopened", "paused", "withdrawn"})


def notify() -> OwnerNotice | None:
    """Send the one notice that is due now; None where none is, or the owner cannot be told.

    Outside any transaction: takes snapshots and runs GnuPG.
    """
    _give_up_cut_off()
    if not _is_time() or not due_holds():
        return None
    channel = owner_channel.channel()
    if channel.mode is Mode.OFF:
        return None
    notice = _claim(channel)
    if notice is None:
        return None
    if _fill(notice):
        outbound.submit(outbound_id=notice.outbound_id, asker=SYSTEM)
    else:
        _cancel(notice.outbound)
    return notice


def tell_refusal(*, answer: MailedAnswer) -> OwnerNotice | None:
    """Tell the owner that an answer of his did nothing, and why; None where he cannot be told."""
    channel = owner_channel.channel()
    recent = OwnerNotice.objects.filter(
        kind=OwnerNotice.Kind.REFUSAL, created_at__gt=timezone.now() - timedelta(days=1)
    )
    if channel.mode is not Mode.ENCRYPTED or recent.count() >= MOST_REFUSALS:
        return None
    with unit_of_work():
        if OwnerNotice.objects.filter(answer=answer).exists():
            return None
        notice = _write(channel, kind=OwnerNotice.Kind.REFUSAL, answer=answer)
    outbound.submit(outbound_id=notice.outbound_id, asker=SYSTEM)
    return notice


def due_holds() -> list[Hold]:
    """What waits and was not told of, or not freshly, oldest first."""
    waiting = list(Hold.objects.filter(state=Hold.State.WAITING).order_by("since")[:_MOST_HOLDS])
    if not waiting:
        return []
    items = _items_by_hold(waiting)
    quiet = _quietened(waiting)
    reviewed = _under_review(waiting)
    now = timezone.now()
    return [
        hold
        for hold in waiting
        if hold.pk not in quiet and hold.pk not in reviewed and _is_due(items[hold.pk], now)
    ]


def item_of(digest: str) -> NoticeItem | None:
    """The newest snapshot with that digest that was shown to the owner in an encrypted notice.

    One that certainly did not reach him does not count.
    """
    return (
        NoticeItem.objects.select_related("approval__hold", "notice")
        .filter(approval__digest=digest)
        .exclude(notice__encrypted_to="")
        .exclude(notice__outbound__status__in=(*_NOT_SENT, *_NOT_YET))
        .order_by("-pk")
        .first()
    )


_NOT_YET = frozenset({Outbound.Status.DRAFT, Outbound.Status.QUEUED, Outbound.Status.HELD})


def _is_due(items: Sequence[NoticeItem], now: datetime) -> bool:
    """By what was told of this draft so far, newest first."""
    if not items:
        return True
    last = items[0]
    age = now - last.notice.created_at
    lately = sum(1 for item in items if now - item.notice.created_at < VALIDITY)
    if last.notice.outbound.status in _NOT_SENT:
        return age >= _RETRY and lately <= MOST_EXTRA
    if len(items) >= MOST_PER_HOLD:
        return False
    if _has_changed(last.approval):
        return lately <= MOST_EXTRA
    return age >= VALIDITY


def _has_changed(approval: Approval | None) -> bool:
    if approval is None or approval.state != Approval.State.SUPERSEDED:
        return False
    return approval.drifted not in _NO_CHANGE


def _items_by_hold(waiting: Sequence[Hold]) -> Mapping[uuid.UUID, list[NoticeItem]]:
    rows = (
        NoticeItem.objects.filter(hold__in=waiting)
        .select_related("notice__outbound", "approval")
        .order_by("-pk")
    )
    found: dict[uuid.UUID, list[NoticeItem]] = defaultdict(list)
    for item in rows:
        found[item.hold_id].append(item)
    return found


def _quietened(waiting: Sequence[Hold]) -> frozenset[uuid.UUID]:
    """Drafts about which the owner said `later` within a day, or `pause` at any time."""
    answers = MailedAnswer.objects.filter(
        state=MailedAnswer.State.DONE,
        reason=AnswerReason.DONE,
        verb__in=(Verb.LATER, Verb.PAUSE),
        approval__hold__in=waiting,
    ).values_list("approval__hold_id", "verb", "settled_at")
    since = timezone.now() - VALIDITY
    return frozenset(
        hold
        for hold, verb, at in answers
        if hold and (verb == Verb.PAUSE or (at is not None and at > since))
    )


def _under_review(waiting: Sequence[Hold]) -> frozenset[uuid.UUID]:
    """Drafts that a person has before him in the console: a notice would void his page."""
    open_now = Approval.objects.filter(
        hold__in=waiting, state__in=Approval.OPEN, expires_at__gt=timezone.now()
    ).exclude(answer_via=Approval.Via.MAIL)
    return frozenset(hold for hold in open_now.values_list("hold_id", flat=True) if hold)


def _is_time() -> bool:
    """Whether the last notice is long enough ago, and the day not full."""
    now = timezone.now()
    told = _told().exclude(outbound__status__in=_NOT_SENT)
    wait = timedelta(minutes=settings.OWNER_NOTICE_MINUTES)
    if told.filter(created_at__gt=now - wait).exists():
        return False
    today = _told().filter(created_at__gt=now - timedelta(days=1))
    return today.count() < int(settings.OWNER_NOTICES_PER_DAY)


def _told() -> QuerySet[OwnerNotice]:
    return OwnerNotice.objects.filter(kind=OwnerNotice.Kind.HOLDS)


def _claim(channel: Channel) -> OwnerNotice | None:
    """The notice's rows, by one process: under a lock, looked at again."""
    with unit_of_work():
        if channel.account is not None:
            Account.objects.select_for_update(of=("self",)).get(pk=channel.account.pk)
        due = due_holds()
        if not due or not _is_time():
            return None
        notice = _write(channel, kind=OwnerNotice.Kind.HOLDS, waiting=len(due))
        shown = due[:MOST_ITEMS] if channel.mode is Mode.ENCRYPTED else due
        NoticeItem.objects.bulk_create(
            [
                NoticeItem(notice=notice, position=position, hold=hold)
                for position, hold in enumerate(shown, start=1)
            ]
        )
    return notice


def _write(
    channel: Channel,
    *,
    kind: OwnerNotice.Kind,
    waiting: int = 0,
    answer: MailedAnswer | None = None,
) -> OwnerNotice:
    """The notice and the outgoing message that carries it. What it says is not in these rows."""
    if channel.account is None:
        raise AlreadyDecided("nobody can be told")
    identifier = uuid.uuid4()
    subject = notice_text.subject_of(waiting) if answer is None else "An answer did nothing"
    draft = outbound.draft_notice(
        account=channel.account,
        to=channel.address,
        subject=subject,
        origin=Subject(answering.NOTICE, str(identifier)),
    )
    notice = OwnerNotice.objects.create(
        id=identifier,
        kind=kind,
        to=channel.address,
        encrypted_to=channel.pin.fingerprint if channel.pin else "",
        waiting=waiting,
        outbound=draft,
        answer=answer,
    )
    append_event(
        kind="notice.written",
        subject=Subject(answering.NOTICE, str(identifier)),
        actor=str(SYSTEM),
        facts={"about": str(kind), "drafts": waiting, "encrypted_to": notice.encrypted_to},
    )
    return notice


def _fill(notice: OwnerNotice) -> bool:
    """Take the snapshot of each draft; whether there is anything left to tell."""
    items = list(notice.items.select_related("hold").order_by("position"))
    if not notice.encrypted_to:
        return bool(items)
    left = 0
    for item in items:
        item.approval, item.why = _snapshot(item.hold)
        NoticeItem.objects.filter(pk=item.pk).update(approval=item.approval, why=item.why)
        left += item.why != _GONE
    return left > 0


_GONE = "gone"


def _snapshot(hold: Hold) -> tuple[Approval | None, str]:
    """A fresh snapshot that signed mail may answer, or the word for why there is none."""
    try:
        approval = holds.open_for_mail(hold_id=hold.pk, by=SYSTEM, validity=VALIDITY)
        if notice_content.length(approval) > notice_text.MAX_PREVIEW:
            return None, "too-large"
    except AlreadyDecided:
        return None, _GONE
    except CountersignError as error:
        log.warning("mail.no_snapshot", hold=str(hold.pk), reason=error.code)
        return None, "console-only" if error.rule == "answer-elsewhere" else "not-readable"
    return approval, ""


def _give_up_cut_off() -> None:
    """A notice whose process ended before it was submitted: another one is written."""
    stale = OwnerNotice.objects.filter(
        outbound__status=Outbound.Status.DRAFT, created_at__lt=timezone.now() - _CUT_OFF_AFTER
    ).select_related("outbound")
    for notice in stale:
        _cancel(notice.outbound)


def _cancel(draft: Outbound) -> None:
    outbound.move(
        draft,
        Outbound.Status.CANCELLED,
        from_states=(Outbound.Status.DRAFT,),
        reason="interrupted",
    )

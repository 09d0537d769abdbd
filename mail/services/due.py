"""What is due in mail, looked for once a minute: polls, queued replies, verdicts without GnuPG."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from guards import queue
from guards.services.units import unit_of_work
from mail.models import Account
from mail.services import accounts, gmail_reading, leases, mailed_answers, notices, outbound, trust


def sweep() -> None:
    """Enqueue due polls, then do the rest here: it is short."""
    enqueue_polls()
    outbound.settle_cut_off()
    outbound.release_queued()
    trust.recompute_unverified()
    mailed_answers.settle_due()
    if settings.OWNER_EMAIL:
        notices.notify()


def enqueue_polls() -> int:
    """Claim every account whose poll is due and that nobody watches; how many were enqueued.

    What needs a person first is not polled at all (send-16).

    The claim moves the next poll one interval on, so that two sweeps do not enqueue it twice.
    """
    now = timezone.now()
    waiting = (
        Account.objects.exclude(state=Account.State.DISABLED)
        .exclude(poll_interval=Account.Interval.NEVER)
        .exclude(pk__in=gmail_reading.not_connected())
        .filter(Q(next_poll_at=None) | Q(next_poll_at__lte=now))
    )
    enqueued = 0
    for account in waiting:
        if leases.is_watched(account_id=account.pk):
            continue
        wait = accounts.interval(account) or timedelta(minutes=5)
        with unit_of_work():
            claimed = Account.objects.filter(
                pk=account.pk, next_poll_at=account.next_poll_at
            ).update(next_poll_at=now + wait)
            if claimed:
                queue.enqueue("mail.tasks.poll_account", account.pk)
                enqueued += 1
    return enqueued

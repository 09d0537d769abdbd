"""Leases on accounts: one process at a time reads one, and the database knows which.

A lease is claimed by one conditional UPDATE that raises its fence. Whoever comes late, because the
lease ran out under him, fails at `hold_in_writer` inside his own transaction, so nothing is stored
by two.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django.db.models import F, Q
from django.utils import timezone

from guards.process import is_dead, this_process
from guards.services.units import unit_of_work
from mail.exceptions import LeaseHeld, LeaseLost
from mail.models import AccountLease

#: Seconds that a lease lasts without being renewed: longer than any wait between two renewals.
LEASE_SECONDS = 180


@dataclass(frozen=True, slots=True)
class Lease:
    """A claim on one account; `fence` is the number that the database must still show."""

    account_id: int
    holder: str
    fence: int


def acquire(*, account_id: int, watching: bool = False) -> Lease:
    """Claim the account for this process; LeaseHeld while a living one has it.

    A holder that is provably dead counts for nothing, so a restart goes on at once.
    """
    AccountLease.objects.get_or_create(account_id=account_id)
    seen = AccountLease.objects.get(account_id=account_id)
    now = timezone.now()
    free = Q(holder="") | Q(expires_at=None) | Q(expires_at__lt=now)
    if seen.holder and is_dead(seen.holder):
        free |= Q(holder=seen.holder)
    holder = this_process()
    with unit_of_work():
        claimed = AccountLease.objects.filter(free, pk=seen.pk, fence=seen.fence).update(
            holder=holder,
            fence=F("fence") + 1,
            expires_at=now + timedelta(seconds=LEASE_SECONDS),
            watching=watching,
        )
    if not claimed:
        raise LeaseHeld(f"account {account_id} is being read by {seen.holder or 'another process'}")
    return Lease(account_id, holder, seen.fence + 1)


def renew(*, lease: Lease) -> None:
    """Push the end of the lease on; LeaseLost where somebody else has it now."""
    with unit_of_work():
        hold_in_writer(lease=lease)


def hold_in_writer(*, lease: Lease) -> None:
    """Inside a transaction that writes under this lease: it must still be ours, and stays so."""
    held = AccountLease.objects.filter(
        account_id=lease.account_id, holder=lease.holder, fence=lease.fence
    ).update(expires_at=timezone.now() + timedelta(seconds=LEASE_SECONDS))
    if not held:
        raise LeaseLost(f"account {lease.account_id} was taken over: this pass stored nothing more")


def release(*, lease: Lease) -> None:
    """Give the account back; somebody else's lease stays."""
    with unit_of_work():
        AccountLease.objects.filter(
            account_id=lease.account_id, holder=lease.holder, fence=lease.fence
        ).update(holder="", expires_at=None, watching=False)


def is_watched(*, account_id: int) -> bool:
    """Whether a living watcher has the account now."""
    lease = AccountLease.objects.filter(
        account_id=account_id, watching=True, expires_at__gt=timezone.now()
    ).first()
    return lease is not None and not is_dead(lease.holder)

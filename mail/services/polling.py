"""Polling: one pass over an account's folder, from the cursor to the end (DES-015).

The UID cursor moves only with the rows that it stands for. A pass that ends early leaves nothing
half done: the next one goes on where the last commit stood.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields

import structlog
from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone

from guards.exceptions import CountersignError
from guards.services.units import unit_of_work
from mail.exceptions import LeaseHeld, LeaseLost
from mail.gateways.base import FetchResult, Mailbox
from mail.models import Account, FolderCursor, Location
from mail.services import accounts, ingest, leases, mailboxes
from mail.services.leases import Lease
from mail.services.preparing import Position
from mail.types import FetchedMessage, IngestReport, MailboxState

log = structlog.get_logger(__name__)

#: Messages of one FETCH and one commit, and the bytes that they may hold together: so few that a
#: slow line brings them within one lease. Otherwise two readers would take it from each other in
#: turn, and store nothing.
BATCH_MESSAGES = 200
BATCH_BYTES = 16 * 1024 * 1024


def poll(*, account_id: int) -> IngestReport:
    """One pass over one account. Its failures are counted and shown with the account.

    LeaseHeld where a watcher or another poll has it; AccountDisabled, SecretUnavailable or a
    TransportError where the pass could not be made. Where a person has to act first it is not even
    tried, and no further failure is counted.
    """
    account = accounts.usable(account_id)
    mailboxes.refuse_vain(account)
    lease = leases.acquire(account_id=account_id)
    try:
        with mailboxes.open_mailbox(account=account, lease=lease) as mailbox:
            state = mailbox.select(account.folder)
            report = poll_open(account=account, lease=lease, mailbox=mailbox, state=state)
        accounts.record_success(account=account)
    except (LeaseHeld, LeaseLost):
        raise
    except (CountersignError, OSError) as error:  # a full disk too: the account shows it
        accounts.record_failure(account=account, error=error)
        raise
    finally:
        leases.release(lease=lease)
    return report


def poll_open(
    *, account: Account, lease: Lease, mailbox: Mailbox, state: MailboxState
) -> IngestReport:
    """One pass over an open mailbox, under a lease that the caller keeps.

    `state` is what SELECT said when the folder was opened, which may be a while ago: what arrived
    since is found all the same.
    """
    one_pass = _Pass(account, lease, mailbox, _enter(account, lease, state))
    for batch in one_pass.batches():
        one_pass.take(batch)
    one_pass.finish()
    return one_pass.report


@dataclass(slots=True)
class _Entered:
    """The cursor as this pass found it, and what SELECT said."""

    state: MailboxState
    last_uid: int
    first_pass_until: int


@dataclass(slots=True)
class _Pass:
    """One walk from the cursor to the end of the folder.

    `stuck_at` is the first UID that exists but did not come: the cursor stays below it, what lies
    above is stored all the same, and the next pass asks for it again.
    """

    account: Account
    lease: Lease
    mailbox: Mailbox
    entered: _Entered
    report: IngestReport = field(default_factory=IngestReport)
    stuck_at: int | None = None
    highest: int = 0

    def batches(self) -> Iterator[list[tuple[int, int]]]:
        """New UIDs with their sizes, in bites that fit one commit and the memory."""
        shown = self.mailbox.uids_after(self.entered.last_uid)
        self.highest = max(shown, default=0)
        uids = self._unplaced(shown)
        for start in range(0, len(uids), BATCH_MESSAGES):
            bite = uids[start : start + BATCH_MESSAGES]
            sizes = self.mailbox.sizes(bite)
            self._note_absent([uid for uid in bite if uid not in sizes])
            yield from _by_bytes([(uid, sizes[uid]) for uid in bite if uid in sizes])

    def take(self, batch: Sequence[tuple[int, int]]) -> None:
        """Fetch and store one batch. A broken connection is raised after what came is stored."""
        result = self._fetch(batch)
        highest = max((message.uid for message in result.messages), default=0)
        if result.absent:
            self._note_absent(result.absent, cannot_tell=result.broken is not None)
        elif batch:
            highest = max(highest, batch[-1][0])
        self._store(result.messages, highest)
        if result.broken is not None:
            raise result.broken

    def finish(self) -> None:
        """The end was reached: from now on this folder's mail is news.

        The cursor goes to the last mail that was shown. UIDNEXT says no more than which numbers
        were given out: a server may show one of them later than it counts it.
        """
        if self.stuck_at is not None:
            return
        end = {
            "last_uid": max(self.entered.last_uid, self.highest),
            "first_pass_done": True,
            "modseq": self.entered.state.modseq,
        }
        if self._cursor().filter(**end).exists():
            return
        with unit_of_work():
            leases.hold_in_writer(lease=self.lease)
            self._cursor().update(**end, updated_at=timezone.now())

    def _store(self, messages: Sequence[FetchedMessage], highest: int) -> None:
        advance_to = max(self.entered.last_uid, highest)
        if self.stuck_at is not None:
            advance_to = max(self.entered.last_uid, min(advance_to, self.stuck_at - 1))
        stored = ingest.store_batch(
            account=self.account,
            lease=self.lease,
            position=Position(
                folder=self.account.folder,
                uidvalidity=self.entered.state.uidvalidity,
                expected=self.entered.last_uid,
                advance_to=advance_to,
                first_pass_until=self.entered.first_pass_until,
                completes=self.stuck_at is None and advance_to >= self.highest,
                modseq=self.entered.state.modseq,
            ),
            fetched=messages,
        )
        self.entered.last_uid = advance_to
        self.report = _sum(self.report, stored)

    def _fetch(self, batch: Sequence[tuple[int, int]]) -> FetchResult:
        """Whole messages up to the limit, large ones by their header."""
        small = [uid for uid, size in batch if size <= settings.MAIL_MAX_BYTES]
        large = [uid for uid, size in batch if size > settings.MAIL_MAX_BYTES]
        whole = self.mailbox.fetch(small)
        if not large or whole.broken is not None:
            return FetchResult(whole.messages, (*whole.absent, *large), whole.broken)
        heads = self.mailbox.fetch(large, headers_only=True)
        messages = sorted((*whole.messages, *heads.messages), key=lambda message: message.uid)
        return FetchResult(tuple(messages), (*whole.absent, *heads.absent), heads.broken)

    def _note_absent(self, absent: Sequence[int], *, cannot_tell: bool = False) -> None:
        """Absent means gone (fine) or not delivered (asked again); a broken line cannot tell."""
        here = frozenset(absent) if cannot_tell else self.mailbox.existing(absent)
        if here:
            log.warning("mail.not_delivered", account=self.account.name, uids=sorted(here)[:20])
            first = min(here)
            self.stuck_at = first if self.stuck_at is None else min(self.stuck_at, first)

    def _unplaced(self, uids: Sequence[int]) -> list[int]:
        """Those that no earlier pass stored above a stuck one."""
        placed = set(
            Location.objects.filter(
                account=self.account,
                folder=self.account.folder,
                uidvalidity=self.entered.state.uidvalidity,
                uid__gt=self.entered.last_uid,
            ).values_list("uid", flat=True)
        )
        return [uid for uid in uids if uid not in placed]

    def _cursor(self) -> QuerySet[FolderCursor]:
        return FolderCursor.objects.filter(
            account=self.account,
            folder=self.account.folder,
            uidvalidity=self.entered.state.uidvalidity,
            last_uid=self.entered.last_uid,
        )


def _enter(account: Account, lease: Lease, state: MailboxState) -> _Entered:
    """The cursor for this folder as it is now; another UIDVALIDITY starts it over.

    The end of the first pass is fixed at its first sight, so that mail which arrives meanwhile is
    news. After a change of UIDVALIDITY everything is fetched again and found by its digest.
    """
    known = FolderCursor.objects.filter(account=account, folder=account.folder).first()
    if known is None or known.uidvalidity != state.uidvalidity:
        known = _start_over(account, lease, state)
    until = 0 if known.first_pass_done else known.first_pass_until or 0
    return _Entered(state, known.last_uid, until)


def _start_over(account: Account, lease: Lease, state: MailboxState) -> FolderCursor:
    with unit_of_work():
        leases.hold_in_writer(lease=lease)
        cursor, made = FolderCursor.objects.get_or_create(account=account, folder=account.folder)
        if cursor.uidvalidity != state.uidvalidity:
            cursor.uidvalidity, cursor.last_uid = state.uidvalidity, 0
            cursor.first_pass_until = max(state.uidnext - 1, 0)
            cursor.save()
            if not made:
                log.info("mail.uidvalidity", account=account.name, folder=account.folder)
    return cursor


def _by_bytes(sized: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    bite: list[tuple[int, int]] = []
    weight = 0
    for uid, size in sized:
        counted = min(size, settings.MAIL_MAX_BYTES)
        if bite and weight + counted > BATCH_BYTES:
            yield bite
            bite, weight = [], 0
        bite.append((uid, size))
        weight += counted
    if bite:
        yield bite


def _sum(one: IngestReport, other: IngestReport) -> IngestReport:
    counts = {
        name: getattr(one, name) + getattr(other, name)
        for name in (entry.name for entry in fields(IngestReport))
        if name != "first_pass"
    }
    return IngestReport(**counts, first_pass=one.first_pass or other.first_pass)

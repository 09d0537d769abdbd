"""Which messages of a Gmail label are known: the ledger of `gateways.google.mailbox`, in rows."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from django.db.models import Max, QuerySet

from guards.services.units import unit_of_work
from mail.exceptions import LeaseLost
from mail.gateways.google.base import MessageReference
from mail.models import Account, FolderCursor, GmailMessage
from mail.services import leases
from mail.services.leases import Lease
from mail.types import MailboxState

#: Values of one query: SQLite takes no more than 32,766.
_AT_ONCE = 10_000


@dataclass(slots=True)
class RowLedger:
    """One account's label in one mailbox, under a lease."""

    account: Account
    lease: Lease
    mailbox: str
    _uidvalidity: int = field(init=False)

    def __post_init__(self) -> None:
        # Another mailbox behind the same account is another numbering.
        self._uidvalidity = zlib.crc32(self.mailbox.encode()) or 1

    def history_id(self) -> int | None:
        """The cursor of this mailbox; None where the label was never read to the end."""
        cursor = self._cursors().filter(uidvalidity=self._uidvalidity).first()
        return cursor.history_id if cursor is not None else None

    def enter(
        self,
        *,
        older: Sequence[MessageReference],
        newer: Sequence[MessageReference],
        history_id: int,
    ) -> None:
        """Number the unknown ones and move the cursor, under the lease, in one commit."""
        with unit_of_work():
            leases.hold_in_writer(lease=self.lease)
            known = self._known([*older, *newer])
            fresh_older = [one for one in older if one.id not in known]
            fresh = [*fresh_older, *(one for one in newer if one.id not in known)]
            last = self._rows().aggregate(last=Max("uid"))["last"] or 0
            GmailMessage.objects.bulk_create(
                [self._row(uid, one) for uid, one in enumerate(fresh, start=last + 1)],
                batch_size=1000,
            )
            self._move_cursor(history_id, first_pass_until=last + len(fresh_older))

    def renew(self) -> None:
        """Keep the lease through a long list."""
        leases.renew(lease=self.lease)

    def state(self) -> MailboxState:
        """Numbered as a mailbox would."""
        last = self._rows().aggregate(last=Max("uid"))["last"] or 0
        return MailboxState(self._uidvalidity, last + 1, last)

    def uids_after(self, uid: int) -> tuple[int, ...]:
        """Ascending."""
        return tuple(self._rows().filter(uid__gt=uid).order_by("uid").values_list("uid", flat=True))

    def references(self, uids: Sequence[int]) -> dict[int, MessageReference]:
        """Gmail's ids by UID."""
        rows = self._rows().filter(uid__in=uids).values_list("uid", "gmail_id", "thread_id")
        return {uid: MessageReference(gmail_id, thread_id) for uid, gmail_id, thread_id in rows}

    def _move_cursor(self, history_id: int, *, first_pass_until: int) -> None:
        """To where the history was read, and never back. A new mailbox starts over."""
        cursor, _ = FolderCursor.objects.get_or_create(
            account=self.account, folder=self.account.folder
        )
        if cursor.uidvalidity != self._uidvalidity:
            cursor.uidvalidity, cursor.last_uid = self._uidvalidity, 0
            cursor.first_pass_done, cursor.first_pass_until = False, first_pass_until
            cursor.history_id = history_id
            cursor.save()
            return
        moved = self._cursors().filter(history_id=cursor.history_id).update(history_id=history_id)
        if not moved:
            raise LeaseLost(f"the cursor of {self.account.name} was moved by another pass")

    def _known(self, found: Sequence[MessageReference]) -> set[str]:
        ids = [one.id for one in found]
        known: set[str] = set()
        for start in range(0, len(ids), _AT_ONCE):
            rows = self._rows().filter(gmail_id__in=ids[start : start + _AT_ONCE])
            known.update(rows.values_list("gmail_id", flat=True))
        return known

    def _row(self, uid: int, found: MessageReference) -> GmailMessage:
        return GmailMessage(
            account=self.account,
            folder=self.account.folder,
            uidvalidity=self._uidvalidity,
            uid=uid,
            gmail_id=found.id,
            thread_id=found.thread_id,
        )

    def _rows(self) -> QuerySet[GmailMessage]:
        return GmailMessage.objects.filter(
            account=self.account, folder=self.account.folder, uidvalidity=self._uidvalidity
        )

    def _cursors(self) -> QuerySet[FolderCursor]:
        return FolderCursor.objects.filter(account=self.account, folder=self.account.folder)

"""Threads: which messages of an account answer each other, by References and In-Reply-To only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from mail.models import Account, Message, Outbound, Thread

#: How many ids of a References header are looked up: the last ones are the nearest.
_NEAREST = 20


@dataclass(slots=True)
class Threader:
    """Finds or makes the thread of each message of one batch, inside the storing transaction.

    A message joins the thread of the nearest id it answers that is known here, ours included. An
    answer to something never seen opens a thread under that id, so that two answers to it and, one
    day, the original meet (headers-21).
    """

    account: Account
    _by_id: dict[str, int] = field(default_factory=dict)

    def thread_for(
        self,
        *,
        message_id: str,
        answers: Sequence[str],
        digest: str,
        subject: str,
        at: datetime,
    ) -> int:
        """The id of its thread. `answers` are References and In-Reply-To, oldest first."""
        nearest = [known for known in answers if known][-_NEAREST:]
        found = self._known(nearest) or self._rooted([*nearest[:1], message_id])
        if found is None:
            root = (nearest[0] if nearest else message_id) or f"sha256:{digest}"
            thread, _ = Thread.objects.get_or_create(
                account=self.account, root_id=root, defaults={"subject": subject, "last_at": at}
            )
            found = thread.pk
        Thread.objects.filter(pk=found, last_at__lt=at).update(last_at=at)
        if message_id:
            self._by_id.setdefault(message_id, found)
        return found

    def _known(self, ids: Sequence[str]) -> int | None:
        """The thread of the nearest of these ids."""
        if not ids:
            return None
        threads = dict(
            Message.objects.filter(account=self.account, message_id__in=ids)
            .exclude(thread=None)
            .values_list("message_id", "thread_id")
        )
        threads |= dict(
            Outbound.objects.filter(account=self.account, message_id__in=ids)
            .exclude(thread=None)
            .values_list("message_id", "thread_id")
        )
        threads |= {known: self._by_id[known] for known in ids if known in self._by_id}
        return next((threads[known] for known in reversed(ids) if known in threads), None)

    def _rooted(self, ids: Sequence[str]) -> int | None:
        """The thread that one of these ids is the root of."""
        wanted = [known for known in ids if known]
        return (
            Thread.objects.filter(account=self.account, root_id__in=wanted)
            .order_by("pk")
            .values_list("pk", flat=True)
            .first()
            if wanted
            else None
        )

"""django-q2's broker, fenced: only registered tasks enter the queue, and only they leave it.

Whoever can write a row into the queue's tables can name any function. The fence stands where the
worker takes a row, so it holds however the row came about.
"""

from __future__ import annotations

from django.utils import timezone
from django_q.brokers.orm import ORM
from django_q.conf import Conf
from django_q.models import OrmQ

from guards.exceptions import TaskRefused
from guards.queue import wakeup
from guards.queue.admission import announce, refusal_of_package
from guards.services.units import unit_of_work

Taken = tuple[int | None, str | bytes]


def refuse_unregistered(package: str) -> None:
    """TaskRefused for a package of anything but a registered task."""
    refusal = refusal_of_package(package)
    if refusal is not None:
        raise TaskRefused(f"{refusal[1]!r} is not a registered task")


class OrmBroker(ORM):
    """The queue in our own database. While it is empty the worker sleeps until it is woken."""

    _listener: wakeup.Listener | None = None

    def enqueue(self, task: str) -> int:
        """Put a signed package onto the queue and wake a worker once the transaction commits."""
        refuse_unregistered(task)
        row = self.get_connection().create(
            key=self.list_key or Conf.CLUSTER_NAME, payload=task, lock=timezone.now()
        )
        wakeup.wake(using=Conf.ORM)
        return int(row.pk)

    def dequeue(self) -> list[Taken]:
        """Claim the oldest due rows; rows that nobody may run are deleted and announced."""
        taken = self._claim()
        if not taken:
            self._sleep()
            return []
        return [row for row in taken if self._admits(row)]

    def _claim(self) -> list[Taken]:
        due = (
            self.get_connection().filter(key=self.list_key, lock__lt=timezone.now()).order_by("pk")
        )
        return [
            (row.pk, row.payload)
            for row in due[: Conf.BULK]
            if self.get_connection().filter(pk=row.pk, lock=row.lock).update(lock=self.timeout(row))
        ]

    def _admits(self, row: Taken) -> bool:
        row_id, package = row
        refusal = refusal_of_package(package)
        if refusal is None:
            return True
        with unit_of_work():
            if OrmQ.objects.using(Conf.ORM).filter(pk=row_id).delete()[0]:
                announce(where=refusal[0], path=refusal[1])
        return False

    def _sleep(self) -> None:
        if self._listener is None or not self._listener.is_ours():
            self._listener = wakeup.listener(using=Conf.ORM)
            return  # look once more: a row may have come before we listened
        self._listener.wait(Conf.POLL)

    def __getstate__(self) -> tuple[str, str | None]:
        return self.list_key, self._info

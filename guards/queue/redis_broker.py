"""The same fence around django-q2's broker on Redis, for installations that have one.

A module of its own: who has none does not load a client for it each time that a program starts.
"""

from __future__ import annotations

from django_q.brokers.redis_broker import Redis

from guards.queue.admission import announce, refusal_of_package
from guards.queue.brokers import Taken, refuse_unregistered
from guards.services.units import unit_of_work


class RedisBroker(Redis):
    """The queue in Redis, whose own blocking pop needs no wake-up."""

    def enqueue(self, task: str) -> int:
        """Put a signed package onto the queue at once (Redis knows no transaction of ours)."""
        refuse_unregistered(task)
        return int(super().enqueue(task))

    def dequeue(self) -> list[Taken]:
        """Take the oldest package; one that nobody may run is dropped and announced."""
        taken: list[Taken] = super().dequeue() or []
        return [row for row in taken if self._admits(row)]

    def _admits(self, row: Taken) -> bool:
        refusal = refusal_of_package(row[1])
        if refusal is None:
            return True
        with unit_of_work():
            announce(where=refusal[0], path=refusal[1])
        return False

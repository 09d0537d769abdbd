"""The executor's turn, and what meets what: whoever holds it knows what runs, and claims alone."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from django.db import connection

from guards.services.statements import Statement
from pipelines import write_sets
from pipelines.models import ExecutorTurn, Mission, Pipeline
from pipelines.services import rows
from pipelines.services.rows import Answer, Message

#: The same row that `ExecutorTurn.take` waits for.
_TURN = Statement("SELECT id FROM pipelines_executorturn WHERE id = 1 FOR UPDATE")


class Turn:
    """The executor's turn, and what runs while it is held: asked for in a message, then known.

    Whoever has it claims alone, until the transaction ends. SQLite's own lock does that there.
    """

    def __init__(self, message: Message) -> None:
        self._is_taken: Answer[bool] | None = None
        if connection.features.has_select_for_update:
            self._is_taken = message.ask(_TURN, lambda result: bool(result.rows))
        self._sets = ask_running(message)

    @property
    def occupied(self) -> Occupied:
        """By each pipeline that a worker holds, and by open missions."""
        if self._is_taken is None or self._is_taken.value:
            return Occupied([one.write_set for one in self._sets.value])
        ExecutorTurn.take()  # there was no row to wait for
        return occupied()


def take() -> Turn:
    """The turn in a message of its own; joins the caller's unit."""
    message = Message()
    turn = Turn(message)
    message.send()
    return turn


def occupied(but: Collection[UUID] = ()) -> Occupied:
    """The same without the turn, but by those."""
    message = Message()
    running = ask_running(message)
    message.send()
    return Occupied([one.write_set for one in running.value if one.pk not in but])


def ask_running(message: Message) -> Answer[list[Pipeline]]:
    """The pipelines that a worker holds, with their write sets.

    One without a lease holds none: only its reply is still on its way.
    """
    where = {"status": Pipeline.Status.RUNNING, "lease_until": rows.PRESENT}
    return message.find_parts(Pipeline, ("write_set",), where=where)


class Occupied:
    """What others may change now: the write sets of what runs, and what open missions keep.

    The latter are read when they are first asked for, and once.
    """

    def __init__(self, running: Collection[list[str]]) -> None:
        self._running = [*running]
        self._kept: list[tuple[UUID, list[str]]] | None = None

    def __len__(self) -> int:
        """How many pipelines run."""
        return len(self._running)

    def add(self, write_set: list[str]) -> None:
        """One more runs from now on."""
        self._running.append(write_set)

    def meets(self, pipeline_id: UUID, write_set: list[str]) -> bool:
        """Whether somebody else may change what this pipeline may change."""
        if not write_set:
            return False
        if self._kept is None:
            self._kept = _kept_write_sets()
        kept = (paths for holder, paths in self._kept if holder != pipeline_id)
        return any(write_sets.overlap(write_set, other) for other in (*self._running, *kept))


def _kept_write_sets() -> list[tuple[UUID, list[str]]]:
    """What open missions may still change, by pipeline: also of one that waits for a person.

    A mission keeps only its own set, and not when an operator has released it (W16).
    """
    open_ones = Mission.objects.filter(status=Mission.Status.OPEN, released_at__isnull=True)
    return list(open_ones.values_list("pipeline_id", "write_set"))

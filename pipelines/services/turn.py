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
    def write_sets(self) -> list[list[str]]:
        """One for each pipeline that a worker holds, as `running_write_sets`."""
        if self._is_taken is None or self._is_taken.value:
            return [one.write_set for one in self._sets.value]
        ExecutorTurn.take()  # there was no row to wait for
        return running_write_sets()


def take() -> Turn:
    """The turn in a message of its own; joins the caller's unit."""
    message = Message()
    turn = Turn(message)
    message.send()
    return turn


def running_write_sets(but: Collection[UUID] = ()) -> list[list[str]]:
    """One set for each pipeline that a worker holds, but for those."""
    message = Message()
    running = ask_running(message)
    message.send()
    return [one.write_set for one in running.value if one.pk not in but]


def ask_running(message: Message) -> Answer[list[Pipeline]]:
    """The pipelines that a worker holds, with their write sets.

    One without a lease holds none: only its reply is still on its way.
    """
    where = {"status": Pipeline.Status.RUNNING, "lease_until": rows.PRESENT}
    return message.find_parts(Pipeline, ("write_set",), where=where)


def _kept_write_sets() -> list[tuple[UUID, list[str]]]:
    """What open missions may still change, by pipeline: also of one that waits for a person.

    A mission keeps only its own set, and not when an operator has released it (W16).
    """
    open_ones = Mission.objects.filter(status=Mission.Status.OPEN, released_at__isnull=True)
    return list(open_ones.values_list("pipeline_id", "write_set"))


def meets(
    pipeline_id: UUID,
    write_set: list[str],
    running: list[list[str]],
) -> bool:
    """Whether somebody else may change what this pipeline may change."""
    if not write_set:
        return False
    kept = (paths for holder, paths in _kept_write_sets() if holder != pipeline_id)
    others = [*running, *kept]
    return any(write_sets.overlap(write_set, other) for other in others)

"""Units of work: one transaction, and one last word before it commits.

Django has no hook before commit. `unit_of_work` is the transaction that services open; as the last
thing inside the outermost one it sends `unit_closing`, where the event log appends what was
collected. A nested unit that fails takes only its own notes with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from asgiref.local import Local
from django.db import transaction

from guards.services.turns import turn_to_write
from guards.signals import unit_closing

_state = Local()


@dataclass(slots=True)
class Unit:
    """The outermost open unit; `notes` are what upper apps collected for its end."""

    notes: list[object] = field(default_factory=list)


def current_unit() -> Unit | None:
    """The open unit of this thread or task, else None."""
    unit: Unit | None = getattr(_state, "unit", None)
    return unit


@contextmanager
def unit_of_work(*, durable: bool = False) -> Iterator[Unit]:
    """Open a transaction, or join the caller's unit inside a savepoint.

    `durable=True` refuses to run inside another transaction: for services that must have committed
    when they return.
    """
    outer = current_unit()
    if outer is not None:
        mark = len(outer.notes)
        try:
            with transaction.atomic(durable=durable):
                yield outer
        except BaseException:
            del outer.notes[mark:]
            raise
        return
    unit = Unit()
    with turn_to_write() as turn, transaction.atomic(durable=durable):
        if turn.is_held:
            transaction.on_commit(turn.give_back)
        _state.unit = unit
        try:
            yield unit
            unit_closing.send(sender=Unit, unit=unit)
        finally:
            _state.unit = None

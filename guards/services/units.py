"""Units of work: one transaction, and one last word before it commits.

Django has no hook before commit. `unit_of_work` is the transaction that services open; as the last
thing inside the outermost one it sends `unit_closing`, where the event log appends what was
collected. A nested unit that fails takes only its own notes with it.

What is left for the very end in `Unit.last` is sent together with the COMMIT.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from asgiref.local import Local
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from guards.services import statements
from guards.services.statements import Statement
from guards.services.turns import turn_to_write
from guards.signals import unit_closing

_state = Local()


@dataclass(slots=True)
class Unit:
    """The outermost open unit; `notes` are what upper apps collected for its end.

    `depth` is how many units are open inside of it, and `last` the statements that it ends with.
    """

    notes: list[object] = field(default_factory=list)
    depth: int = 0
    last: list[Statement] = field(default_factory=list)


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
        outer.depth += 1
        try:
            with transaction.atomic(durable=durable):
                yield outer
        except BaseException:
            del outer.notes[mark:]
            raise
        finally:
            outer.depth -= 1
        return
    unit = Unit()
    connection = connections[DEFAULT_DB_ALIAS]
    commits = is_outside(connection)
    if commits and connection.errors_occurred:
        # Whoever found it lost has failed; what is recorded next must not fail with them.
        connection.close_if_unusable_or_obsolete()
    with turn_to_write() as turn, transaction.atomic(durable=durable):
        if turn.is_held:
            transaction.on_commit(turn.give_back)
        _state.unit = unit
        try:
            yield unit
            unit_closing.send(sender=Unit, unit=unit)
            statements.execute_last(unit.last, commits=commits)
        finally:
            _state.unit = None


def look_after_connection() -> None:
    """After a long contact: what is recorded next finds a connection that works.

    A server that was started anew meanwhile, or a wall that forgets whoever is silent, has taken
    the old one. To look costs a round trip.
    """
    connection = connections[DEFAULT_DB_ALIAS]
    if connection.connection is None or not is_outside(connection):
        return
    if not connection.is_usable():
        connection.close()


def is_outside(connection: BaseDatabaseWrapper) -> bool:
    """Whether no transaction is open, so that the one that is opened now ends with its block."""
    return connection.get_autocommit() and not connection.in_atomic_block

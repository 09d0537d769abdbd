"""Several statements of plain SQL in one message, where the database is a way off.

On PostgreSQL each statement that is sent by itself waits for its answer: a round trip costs more
than most statements do. Those that are known beforehand go together, in their order; each still
sees what the ones before it have changed and what others have committed meanwhile. One that fails
is the last one that is executed, and its transaction is broken as ever. SQLite is in this process:
there they are executed one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper


class Statement(NamedTuple):
    """One statement, with `%s` for each of its values, and no `;` of its own."""

    text: str
    values: Sequence[Any] = ()


class Result(NamedTuple):
    """What came of a statement: how many rows it met, and those that it returned."""

    met: int
    rows: list[tuple[Any, ...]]


_COMMIT = Statement("COMMIT")


def execute(statements: Sequence[Statement]) -> list[Result]:
    """Execute them in their order, in one message where that saves time; a result for each."""
    connection = connections[DEFAULT_DB_ALIAS]
    if not statements:
        return []
    with connection.cursor() as cursor:
        if not can_join(connection):
            return [_executed(cursor, one) for one in statements]
        # Bound one by one: the driver knows a statement again, but not what is joined of several.
        with connection.wrap_database_errors:  # as for a value that none can be
            bound = [cursor.mogrify(one.text, one.values) for one in statements]
        cursor.execute("; ".join(bound))
        driver = cursor.cursor  # each look at it through Django's costs as much as a value
        with connection.wrap_database_errors:
            results = [_told(driver)]
            while driver.nextset():
                results.append(_told(driver))
    return results


def execute_last(statements: Sequence[Statement], *, commits: bool) -> list[Result]:
    """The last statements of a transaction; in the same message its COMMIT, where that saves time.

    A result for each of them, as `execute`.
    `commits` says that the transaction ends with the block that the caller is about to leave. The
    driver then finds nothing open to commit, and what waits for the commit runs as ever.
    """
    joined = commits and can_join(connections[DEFAULT_DB_ALIAS])
    results = execute([*statements, _COMMIT] if statements and joined else statements)
    return results[: len(statements)]


def can_join(connection: BaseDatabaseWrapper) -> bool:
    """Whether several statements go in one message: on PostgreSQL, unless it binds the values."""
    binds = getattr(connection.features, "uses_server_side_binding", False)
    return connection.vendor == "postgresql" and not binds


def _executed(cursor: CursorWrapper, statement: Statement) -> Result:
    cursor.execute(statement.text, statement.values)
    return _result(cursor)


def _told(driver: Any) -> Result:
    """The driver's present result; its description would be made anew for each of its columns."""
    has_rows = driver.pgresult is not None and driver.pgresult.nfields
    return Result(driver.rowcount, driver.fetchall() if has_rows else [])


def _result(cursor: CursorWrapper) -> Result:
    return Result(cursor.rowcount, cursor.fetchall() if cursor.description else [])

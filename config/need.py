"""One thing that waits on the operator, and where such things come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import QuerySet

#: How many rows of one source the index shows; the rest is one click away in its list.
ROWS_PER_SOURCE = 20


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that waits: since when, what, why, and the act that answers it.

    `act` is the label; with `post` it is a button that POSTs to `url`, else a link.
    """

    kind: str
    icon: str
    tone: str
    since: datetime
    title: str
    cause: str
    act: str
    url: str
    post: bool = False
    label: str = ""


#: A kind of need: its name, what is counted, and how its rows read. What is counted is the same
#: text each time: whatever depends on the time is asked by the database's own clock (`Now()`).
Source = tuple[str, Callable[[], QuerySet[Any, Any]], Callable[..., Iterator[Need]]]


def counting(queries: Iterable[QuerySet[Any, Any]]) -> tuple[str, list[Any]]:
    """One statement, with its parameters, that counts the rows of each query: a column for each."""
    columns: list[str] = []
    parameters: list[Any] = []
    for query in queries:
        compiler = _bare(query).query.get_compiler(connection=connection, elide_empty=False)
        rows, given = compiler.as_sql()
        columns.append(f"(SELECT COUNT(*) FROM ({rows}) AS counted)")  # noqa: S608 - the ORM's text
        parameters += given
    return f"SELECT {', '.join(columns)}", parameters


def _bare(query: QuerySet[Any, Any]) -> QuerySet[Any, Any]:
    """The same rows without their order, and without columns that a count does not need."""
    rows = query.order_by()
    return rows if query.query.values_select else rows.values("pk")

"""Reading and moving rows in plain SQL, where a pipeline passes many times.

What the ORM builds anew for each statement took most of the time of a short pipeline (ADR 0062).
The values go through the models' own fields, both ways, and only names of their columns stand in
the statement. Statements that do not wait for each other's answers go as one `Message`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Generic, NamedTuple, TypeVar

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Field, Model

from guards.services import statements
from guards.services.statements import Result, Statement
from teams.services import events

Row = TypeVar("Row", bound=Model)
Found = TypeVar("Found")

Converter = Callable[[Any, Any, Any], Any]

#: In a `where`: whatever the value is, there is one.
PRESENT = object()


@dataclass(frozen=True, slots=True)
class KeyOf:
    """In a `where`: the key of a row of that model which is as its own `where` says."""

    model: type[Model]
    where: Mapping[str, Any]


class Answer(Generic[Found]):
    """What a statement of a message came to, once that is sent."""

    __slots__ = ("_found", "_is_there", "_read")

    def __init__(self, read: Callable[[Result], Found]) -> None:
        self._read = read
        self._is_there = False
        self._found: Found

    @classmethod
    def known(cls, value: Found) -> Answer[Found]:
        """What no statement has to be asked for."""
        answer = cls(lambda _: value)
        answer.take(Result(0, []))
        return answer

    def take(self, result: Result) -> None:
        """The database has answered."""
        self._found, self._is_there = self._read(result), True

    @property
    def value(self) -> Found:
        """What it came to."""
        assert self._is_there, "its message was not sent"  # noqa: S101
        return self._found


class Message:
    """Statements that go to the database together, in the order they were asked for.

    None of them waits for what another one came to: where one must not find its row unless the one
    before did, its `where` says so (`KeyOf`), or the caller rolls both back.
    """

    def __init__(self) -> None:
        self._asked: list[tuple[Statement, Answer[Any]]] = []

    def ask(self, statement: Statement, read: Callable[[Result], Found]) -> Answer[Found]:
        """Any statement; `read` makes of its result what the answer tells."""
        answer = Answer(read)
        self._asked.append((statement, answer))
        return answer

    def add(self, other: Message) -> None:
        """What the other one asks, after this one's own; it is sent with this one alone."""
        self._asked += other._asked

    def update(
        self, model: type[Model], *, where: Mapping[str, Any], changes: Mapping[str, Any]
    ) -> Answer[bool]:
        """As `update`."""
        return self.ask(_updating(model, where, changes), _has_met)

    def update_several(
        self,
        model: type[Model],
        keys: Collection[Any],
        *,
        where: Mapping[str, Any],
        changes: Mapping[str, Any],
    ) -> Answer[set[Any]]:
        """As `update_several`."""
        connection = _database()
        key = _columns(model, connection.vendor)["pk"]
        asked = {key.field.get_db_prep_value(one, connection): one for one in keys}
        text, values = _updating(model, {"pk": [*keys], **where}, changes)
        statement = Statement(f"{text} RETURNING {key.quoted}", values)
        return self.ask(statement, lambda result: {asked[found] for (found,) in result.rows})

    def find(
        self,
        model: type[Row],
        *,
        where: Mapping[str, Any],
        order_by: str = "",
        limit: int = 0,
        keep: bool = False,
    ) -> Answer[list[Row]]:
        """As `find`."""
        connection = _database()
        columns = _columns(model, connection.vendor)
        condition, wanted = _condition(columns, where, connection)
        text = f"{_selection(model, connection.vendor)} WHERE {condition}"
        if order_by:
            text += f" ORDER BY {columns[order_by].quoted}"
        if limit:
            text += f" LIMIT {limit:d}"
        if keep and connection.features.has_select_for_update:
            text += " FOR NO KEY UPDATE"
        return self.ask(Statement(text, wanted), partial(_all_made, model, _names(model)))

    def find_parts(
        self,
        model: type[Row],
        fields: tuple[str, ...],
        *,
        where: Mapping[str, Any],
        order_by: str = "",
        limit: int = 0,
        skip: int = 0,
    ) -> Answer[list[Row]]:
        """As `find_parts`."""
        connection = _database()
        columns = _columns(model, connection.vendor)
        names = _names(model, fields)
        condition, wanted = _condition(columns, where, connection)
        listed = ", ".join(columns[name].quoted for name in names)
        text = f"SELECT {listed} FROM {_table(model)} WHERE {condition}"  # noqa: S608
        if order_by:
            text += f" ORDER BY {columns[order_by].quoted}"
        if limit:
            text += f" LIMIT {limit:d} OFFSET {skip:d}"
        return self.ask(Statement(text, wanted), partial(_all_made, model, names))

    def find_some(self, model: type[Model], *, where: Mapping[str, Any]) -> Answer[bool]:
        """Whether there is such a row."""
        condition, wanted = _condition(_columns(model, _database().vendor), where, _database())
        text = f"SELECT 1 FROM {_table(model)} WHERE {condition} LIMIT 1"  # noqa: S608
        return self.ask(Statement(text, wanted), lambda result: bool(result.rows))

    def send(self, *, last: bool = False) -> None:
        """Have all of them executed: the answers are there when this returns.

        `last` says that the unit of work only closes after it: the head of the log is then locked
        with them, and not in a message of its own.
        """
        asked, self._asked = self._asked, []
        head = events.head_to_hold() if last else None
        wanted = [statement for statement, _ in asked]
        results = statements.execute([*wanted, head] if head else wanted)
        for (_, answer), result in zip(asked, results, strict=False):
            answer.take(result)
        if head:
            events.hold_head(results[-1])


def update(model: type[Model], *, where: Mapping[str, Any], changes: Mapping[str, Any]) -> bool:
    """One conditional UPDATE; whether a row was there. `where` is as in `find`."""
    (result,) = statements.execute([_updating(model, where, changes)])
    return _has_met(result)


def insert(row: Model) -> None:
    """One INSERT of a row as it is; a key that the database makes is set on it."""
    model = type(row)
    connection = _database()
    columns = _columns(model, connection.vendor)
    key = columns["pk"]
    is_made = row.pk is None
    fields = [one for one in model._meta.concrete_fields if not (is_made and one is key.field)]
    values = [one.get_db_prep_save(getattr(row, one.attname), connection) for one in fields]
    named = ", ".join(columns[field.attname].quoted for field in fields)
    places = ", ".join(["%s"] * len(fields))
    text = f"INSERT INTO {_table(model)} ({named}) VALUES ({places})"  # noqa: S608
    (result,) = statements.execute([Statement(f"{text} RETURNING {key.quoted}", values)])
    if is_made:
        row.pk = result.rows[0][0]
    row._state.adding, row._state.db = False, connection.alias


def find(
    model: type[Row],
    *,
    where: Mapping[str, Any],
    order_by: str = "",
    limit: int = 0,
    keep: bool = False,
) -> list[Row]:
    """The rows that are as `where` says: a column's value, or one of a collection of values.

    `keep` keeps them from other writers until the transaction ends.
    """
    message = Message()
    found = message.find(model, where=where, order_by=order_by, limit=limit, keep=keep)
    message.send()
    return found.value


def find_parts(
    model: type[Row],
    fields: tuple[str, ...],
    *,
    where: Mapping[str, Any],
    order_by: str = "",
    limit: int = 0,
    skip: int = 0,
) -> list[Row]:
    """Those rows with their key and these fields alone; the others are read when asked for.

    The first `skip` are left out, and `limit` is how many there are at most.
    """
    message = Message()
    found = message.find_parts(
        model, fields, where=where, order_by=order_by, limit=limit, skip=skip
    )
    message.send()
    return found.value


def _database() -> BaseDatabaseWrapper:
    """The connection itself: each look at it through Django's proxy costs as much as a value."""
    return connections[DEFAULT_DB_ALIAS]


class _Column(NamedTuple):
    field: Field[Any, Any]
    quoted: str


@lru_cache
def _columns(model: type[Model], vendor: str) -> dict[str, _Column]:
    """The columns of a model, by the name of the field and, of a relation, of its key."""
    named: dict[str, _Column] = {}
    for field in model._meta.concrete_fields:
        column = _Column(field, _database().ops.quote_name(str(field.column)))
        named[field.name] = named[field.attname] = column
        if field.primary_key:
            named["pk"] = column
    return named


def _table(model: type[Model]) -> str:
    return _database().ops.quote_name(model._meta.db_table)


@lru_cache
def _selection(model: type[Model], vendor: str) -> str:
    columns = _columns(model, vendor)
    listed = ", ".join(columns[field.attname].quoted for field in model._meta.concrete_fields)
    return f"SELECT {listed} FROM {_table(model)}"  # noqa: S608


def _updating(
    model: type[Model], where: Mapping[str, Any], changes: Mapping[str, Any]
) -> Statement:
    connection = _database()
    columns = _columns(model, connection.vendor)
    sets = ", ".join(f"{columns[name].quoted} = %s" for name in changes)
    values = [
        columns[name].field.get_db_prep_save(value, connection) for name, value in changes.items()
    ]
    condition, wanted = _condition(columns, where, connection)
    text = f"UPDATE {_table(model)} SET {sets} WHERE {condition}"  # noqa: S608
    return Statement(text, [*values, *wanted])


def _has_met(result: Result) -> bool:
    return bool(result.met)


def _condition(
    columns: Mapping[str, _Column], where: Mapping[str, Any], connection: BaseDatabaseWrapper
) -> tuple[str, list[Any]]:
    terms: list[str] = []
    values: list[Any] = []
    for name, value in where.items():
        field, quoted = columns[name]
        if value is PRESENT:
            terms.append(f"{quoted} IS NOT NULL")
        elif isinstance(value, KeyOf):
            of = _columns(value.model, connection.vendor)
            condition, wanted = _condition(of, value.where, connection)
            keys = f"SELECT {of['pk'].quoted} FROM {_table(value.model)} WHERE {condition}"  # noqa: S608
            terms.append(f"{quoted} IN ({keys})")
            values += wanted
        elif isinstance(value, Collection) and not isinstance(value, str):
            wanted = [field.get_db_prep_value(one, connection) for one in value]
            # No value at all is met by no row.
            terms.append(f"{quoted} IN ({', '.join(['%s'] * len(wanted)) or 'NULL'})")
            values += wanted
        else:
            terms.append(f"{quoted} = %s")
            values.append(field.get_db_prep_value(value, connection))
    return " AND ".join(terms), values


def _all_made(model: type[Row], names: list[str], result: Result) -> list[Row]:
    return [_made(model, row, names) for row in result.rows]


def _made(model: type[Row], row: tuple[Any, ...], names: list[str]) -> Row:
    connection = _database()
    values = dict(zip(names, row, strict=True))
    for name, (expression, converters) in _converters(model, connection.vendor).items():
        if name in values:
            for convert in converters:
                values[name] = convert(values[name], expression, connection)
    return model.from_db(connection.alias, names, list(values.values()))


@lru_cache
def _converters(model: type[Model], vendor: str) -> dict[str, tuple[Any, list[Converter]]]:
    """What makes a column's value out of the database's, for each column that needs it."""
    found = {}
    for field in model._meta.concrete_fields:
        column = field.get_col(model._meta.db_table)
        wanted = [
            *_database().ops.get_db_converters(column),
            *column.get_db_converters(_database()),
        ]
        if wanted:
            found[field.attname] = (column, wanted)
    return found


@lru_cache
def _names(model: type[Model], only: tuple[str, ...] = ()) -> list[str]:
    """The columns of a model in its own order: all, or its key and those named."""
    fields = model._meta.concrete_fields
    return [
        field.attname
        for field in fields
        if not only or field.primary_key or {field.name, field.attname} & {*only}
    ]

"""Reading and moving rows in plain SQL, where a pipeline passes many times.

What the ORM builds anew for each statement took most of the time of a short pipeline (ADR 0062).
The values go through the models' own fields, both ways, and only names of their columns stand in
the statement.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Field, Model

Row = TypeVar("Row", bound=Model)

Converter = Callable[[Any, Any, Any], Any]

#: In a `where`: whatever the value is, there is one.
PRESENT = object()


def update(model: type[Model], *, where: Mapping[str, Any], changes: Mapping[str, Any]) -> bool:
    """One conditional UPDATE; whether a row was there. `where` is as in `find`."""
    connection = _database()
    columns = _columns(model, connection.vendor)
    sets = ", ".join(f"{columns[name].quoted} = %s" for name in changes)
    values = [
        columns[name].field.get_db_prep_save(value, connection) for name, value in changes.items()
    ]
    condition, wanted = _condition(columns, where, connection)
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {_table(model)} SET {sets} WHERE {condition}", [*values, *wanted])  # noqa: S608
        return bool(cursor.rowcount)


def update_several(
    model: type[Model],
    keys: Collection[Any],
    *,
    where: Mapping[str, Any],
    changes: Mapping[str, Any],
) -> set[Any]:
    """The same change of several rows in one UPDATE; the keys of those that were there."""
    connection = _database()
    columns = _columns(model, connection.vendor)
    key = columns["pk"]
    asked = {key.field.get_db_prep_value(one, connection): one for one in keys}
    sets = ", ".join(f"{columns[name].quoted} = %s" for name in changes)
    values = [
        columns[name].field.get_db_prep_save(value, connection) for name, value in changes.items()
    ]
    condition, wanted = _condition(columns, {"pk": [*keys], **where}, connection)
    statement = f"UPDATE {_table(model)} SET {sets} WHERE {condition}"  # noqa: S608
    with connection.cursor() as cursor:
        cursor.execute(f"{statement} RETURNING {key.quoted}", [*values, *wanted])
        return {asked[found] for (found,) in cursor.fetchall()}


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
    statement = f"INSERT INTO {_table(model)} ({named}) VALUES ({places})"  # noqa: S608
    with connection.cursor() as cursor:
        cursor.execute(f"{statement} RETURNING {key.quoted}", values)
        if is_made:
            row.pk = cursor.fetchone()[0]
        else:
            cursor.fetchone()
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
    connection = _database()
    columns = _columns(model, connection.vendor)
    condition, wanted = _condition(columns, where, connection)
    statement = f"{_selection(model, connection.vendor)} WHERE {condition}"
    if order_by:
        statement += f" ORDER BY {columns[order_by].quoted}"
    if limit:
        statement += f" LIMIT {limit:d}"
    if keep and connection.features.has_select_for_update:
        statement += " FOR NO KEY UPDATE"
    with connection.cursor() as cursor:
        cursor.execute(statement, wanted)
        found = cursor.fetchall()
    names = _names(model)
    return [_made(model, row, names) for row in found]


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
    connection = _database()
    columns = _columns(model, connection.vendor)
    names = _names(model, fields)
    condition, wanted = _condition(columns, where, connection)
    listed = ", ".join(columns[name].quoted for name in names)
    statement = f"SELECT {listed} FROM {_table(model)} WHERE {condition}"  # noqa: S608
    if order_by:
        statement += f" ORDER BY {columns[order_by].quoted}"
    if limit:
        statement += f" LIMIT {limit:d} OFFSET {skip:d}"
    with connection.cursor() as cursor:
        cursor.execute(statement, wanted)
        found = cursor.fetchall()
    return [_made(model, row, names) for row in found]


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


def _condition(
    columns: Mapping[str, _Column], where: Mapping[str, Any], connection: BaseDatabaseWrapper
) -> tuple[str, list[Any]]:
    terms: list[str] = []
    values: list[Any] = []
    for name, value in where.items():
        field, quoted = columns[name]
        if value is PRESENT:
            terms.append(f"{quoted} IS NOT NULL")
        elif isinstance(value, Collection) and not isinstance(value, str):
            wanted = [field.get_db_prep_value(one, connection) for one in value]
            # No value at all is met by no row.
            terms.append(f"{quoted} IN ({', '.join(['%s'] * len(wanted)) or 'NULL'})")
            values += wanted
        else:
            terms.append(f"{quoted} = %s")
            values.append(field.get_db_prep_value(value, connection))
    return " AND ".join(terms), values


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

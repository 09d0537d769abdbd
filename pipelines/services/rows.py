"""Reading and moving rows in plain SQL, where a pipeline passes many times.

What the ORM builds anew for each statement took most of the time of a short pipeline (ADR 0062).
The values go through the models' own fields, both ways, and only names of their columns stand in
the statement.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from django.db import connection
from django.db.models import Field, Model

Row = TypeVar("Row", bound=Model)

Converter = Callable[[Any, Any, Any], Any]


def update(model: type[Model], *, where: Mapping[str, Any], changes: Mapping[str, Any]) -> bool:
    """One conditional UPDATE; whether a row was there. `where` is as in `find`."""
    fields = _fields(model)
    sets = ", ".join(f"{_quoted(fields[name].column)} = %s" for name in changes)
    values = [fields[name].get_db_prep_save(value, connection) for name, value in changes.items()]
    condition, wanted = _condition(fields, where)
    table = _quoted(model._meta.db_table)
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {table} SET {sets} WHERE {condition}", [*values, *wanted])  # noqa: S608
        return bool(cursor.rowcount)


def find(
    model: type[Row], *, where: Mapping[str, Any], order_by: str = "", limit: int = 0
) -> list[Row]:
    """The rows that are as `where` says: a column's value, or one of a collection of values."""
    fields = _fields(model)
    condition, wanted = _condition(fields, where)
    statement = f"{_selection(model, connection.vendor)} WHERE {condition}"
    if order_by:
        statement += f" ORDER BY {_quoted(fields[order_by].column)}"
    if limit:
        statement += f" LIMIT {limit:d}"
    with connection.cursor() as cursor:
        cursor.execute(statement, wanted)
        found = cursor.fetchall()
    return [_made(model, row) for row in found]


@lru_cache
def _fields(model: type[Model]) -> dict[str, Field[Any, Any]]:
    """The columns of a model, by the name of the field and, of a relation, of its key."""
    fields = model._meta.concrete_fields
    named = {field.name: field for field in fields} | {field.attname: field for field in fields}
    primary = next(field for field in fields if field.primary_key)
    return {**named, "pk": primary}


@lru_cache
def _selection(model: type[Model], vendor: str) -> str:
    columns = ", ".join(_quoted(field.column) for field in model._meta.concrete_fields)
    return f"SELECT {columns} FROM {_quoted(model._meta.db_table)}"  # noqa: S608


def _condition(
    fields: Mapping[str, Field[Any, Any]], where: Mapping[str, Any]
) -> tuple[str, list[Any]]:
    terms: list[str] = []
    values: list[Any] = []
    for name, value in where.items():
        field = fields[name]
        column = _quoted(field.column)
        if isinstance(value, Collection) and not isinstance(value, str):
            wanted = [field.get_db_prep_value(one, connection) for one in value]
            # No value at all is met by no row.
            terms.append(f"{column} IN ({', '.join(['%s'] * len(wanted)) or 'NULL'})")
            values += wanted
        else:
            terms.append(f"{column} = %s")
            values.append(field.get_db_prep_value(value, connection))
    return " AND ".join(terms), values


def _made(model: type[Row], row: tuple[Any, ...]) -> Row:
    values = list(row)
    for index, expression, converters in _converters(model, connection.vendor):
        for convert in converters:
            values[index] = convert(values[index], expression, connection)
    return model.from_db(connection.alias, _names(model), values)


@lru_cache
def _converters(model: type[Model], vendor: str) -> list[tuple[int, Any, list[Converter]]]:
    """What makes a column's value out of the database's, for each column that needs it."""
    found = []
    for index, field in enumerate(model._meta.concrete_fields):
        column = field.get_col(model._meta.db_table)
        wanted = [
            *connection.ops.get_db_converters(column),
            *column.get_db_converters(connection),
        ]
        if wanted:
            found.append((index, column, wanted))
    return found


@lru_cache
def _names(model: type[Model]) -> list[str]:
    return [field.attname for field in model._meta.concrete_fields]


def _quoted(name: str) -> str:
    return connection.ops.quote_name(name)

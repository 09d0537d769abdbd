"""Triggers: what the database itself refuses, whoever writes (W22, DES-019).

Apps register what they want kept: append-only tables, frozen columns, and rules on rows. All render
for SQLite and PostgreSQL and are installed after every migration. On SQLite they are lifted before
one, because a table rebuild drops some of them silently and stumbles over others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.apps.config import AppConfig
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model, UniqueConstraint
from django.db.models.sql import Query

from guards import registry

_PREFIX = "cs_"
_FUNCTION = "countersign_refuse"


@dataclass(frozen=True, slots=True)
class Trigger:
    """One trigger: its table, its name, and the statements that make it, its own one last."""

    table: str
    name: str
    create: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """A trigger as it stands in a database; with its text where that is kept as written."""

    table: str
    text: str | None
    enabled: bool


def install(app_label: str, using: str = DEFAULT_DB_ALIAS) -> None:
    """Make all triggers on one app's tables, replacing what stood there. Missing tables wait."""
    connection = connections[using]
    tables = _tables(connection)
    with transaction.atomic(using=using):
        lift(app_label, using)
        with connection.cursor() as cursor:
            for trigger in _expected(connection, app_label):
                for statement in trigger.create if trigger.table in tables else ():
                    cursor.execute(statement)


def lift(app_label: str, using: str = DEFAULT_DB_ALIAS) -> None:
    """Drop all our triggers on one app's tables, of earlier versions too, until `install` runs."""
    connection = connections[using]
    own = {model._meta.db_table for model in apps.get_app_config(app_label).get_models()}
    with transaction.atomic(using=using), connection.cursor() as cursor:
        for name, standing in _standing(connection).items():
            if standing.table in own:
                on_table = f' ON "{standing.table}"' if connection.vendor == "postgresql" else ""
                cursor.execute(f'DROP TRIGGER "{name}"{on_table}')


def missing(using: str = DEFAULT_DB_ALIAS) -> list[str]:
    """Names of triggers that should stand and do not, or stand otherwise than they should."""
    connection = connections[using]
    standing = _standing(connection)
    return [
        trigger.name
        for label in protected_apps()
        for trigger in _expected(connection, label)
        if not _stands(trigger, standing)
    ]


def protected_apps() -> list[str]:
    """Labels of the apps whose tables hold triggers."""
    labels = [protection.model_label for protection in registry.protections()]
    labels += [rule.model_label for rule in registry.row_rules()]
    return sorted({label.split(".")[0] for label in labels})


def install_after_migration(sender: AppConfig, using: str, **_: object) -> None:
    """Receiver of `post_migrate`."""
    if sender.label in protected_apps():
        install(sender.label, using)


def lift_before_migration(
    sender: AppConfig, using: str, plan: Iterable[object] = (), **_: object
) -> None:
    """Receiver of `pre_migrate`: SQLite checks every trigger while it renames a rebuilt table."""
    if plan and connections[using].vendor == "sqlite" and sender.label in protected_apps():
        lift(sender.label, using)


def _expected(connection: BaseDatabaseWrapper, app_label: str) -> Iterator[Trigger]:
    render_protection, render_rule = _RENDERERS[connection.vendor]
    for protection in registry.protections():
        model = apps.get_model(protection.model_label)
        if model._meta.app_label == app_label:
            yield from render_protection(model, protection, connection)
    for rule in registry.row_rules():
        model = apps.get_model(rule.model_label)
        if model._meta.app_label == app_label:
            yield from render_rule(model, rule)


def _columns(model: type[Model], protection: registry.Protection) -> list[str]:
    """The database's names of the frozen fields, the primary key always among them."""
    columns = {model._meta.pk.column or ""}
    for name in protection.columns:
        matching = [f for f in model._meta.concrete_fields if name in (f.name, f.attname)]
        if not matching:
            raise LookupError(f"{protection.model_label} has no field {name!r} to freeze")
        columns.update(field.column or "" for field in matching)
    return sorted(columns)


@dataclass(frozen=True, slots=True)
class UniqueSet:
    """Columns that no two rows share, where `condition` (SQL, "" for always) holds for both."""

    columns: tuple[str, ...]
    condition: str = ""


def _unique_sets(model: type[Model], connection: BaseDatabaseWrapper) -> list[UniqueSet]:
    fields = model._meta.concrete_fields
    column = {field.name: field.column or "" for field in fields}
    alone = [UniqueSet((column[field.name],)) for field in fields if field.unique]
    together = [
        UniqueSet(
            tuple(column[name] for name in constraint.fields),
            _condition(model, constraint, connection),
        )
        for constraint in model._meta.total_unique_constraints + _partly_unique(model)
        if constraint.fields
    ]
    return alone + together


def _partly_unique(model: type[Model]) -> list[UniqueConstraint]:
    return [
        constraint
        for constraint in model._meta.constraints
        if isinstance(constraint, UniqueConstraint) and constraint.condition is not None
    ]


def _condition(
    model: type[Model], constraint: UniqueConstraint, connection: BaseDatabaseWrapper
) -> str:
    if constraint.condition is None:
        return ""
    query = Query(model, alias_cols=False)
    where = query.build_where(constraint.condition)
    sql, values = where.as_sql(query.get_compiler(connection=connection), connection)
    editor = connection.schema_editor()
    return str(sql % tuple(editor.quote_value(value) for value in values))


def _sentence(model: type[Model], protection: registry.Protection) -> str:
    table = model._meta.db_table
    if protection.columns:
        return f"{table} keeps its {', '.join(_columns(model, protection))}, and its rows"
    return f"{table} is append-only"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# --- SQLite ---------------------------------------------------------------------------------------


def _sqlite_trigger(table: str, name: str, event: str, condition: str, message: str) -> Trigger:
    when = f" WHEN {condition}" if condition else ""
    return Trigger(
        table,
        name,
        (
            f'CREATE TRIGGER "{name}" BEFORE {event} ON "{table}" FOR EACH ROW{when} '
            f"BEGIN SELECT RAISE(ABORT, {_quoted(message)}); END",
        ),
    )


def _sqlite_protection(
    model: type[Model], protection: registry.Protection, connection: BaseDatabaseWrapper
) -> Iterator[Trigger]:
    """UPDATE and DELETE, and what would delete without a DELETE trigger: OR REPLACE."""
    table, message = model._meta.db_table, _sentence(model, protection)
    changed = " OR ".join(
        f'OLD."{column}" IS NOT NEW."{column}"' for column in _columns(model, protection)
    )
    sets = _unique_sets(model, connection)
    replaced = " OR ".join(_replaces(model, one) for one in sets)
    others = " OR ".join(_replaces(model, one, apart_from_old=True) for one in sets)
    conditions = {
        "update": f"{changed} OR {others}" if protection.columns else "",
        "delete": "",
        "insert": replaced,
    }
    for event, condition in conditions.items():
        name = f"{_PREFIX}{table}_keeps_on_{event}"
        yield _sqlite_trigger(table, name, event.upper(), condition, message)


def _replaces(model: type[Model], unique: UniqueSet, *, apart_from_old: bool = False) -> str:
    """Whether a row stands where the new one would; with OR REPLACE it would be gone."""
    table, pk = model._meta.db_table, model._meta.pk.column
    terms = [f'"{column}" = NEW."{column}"' for column in unique.columns]
    terms += [f'"{pk}" IS NOT OLD."{pk}"'] if apart_from_old else []
    terms += [f"({unique.condition})"] if unique.condition else []
    stands = f'EXISTS (SELECT 1 FROM "{table}" WHERE {" AND ".join(terms)})'  # noqa: S608
    if not unique.condition:
        return stands
    columns = (field.column for field in model._meta.concrete_fields)
    new = ", ".join(f'NEW."{column}" AS "{column}"' for column in columns)
    counts = f"EXISTS (SELECT 1 FROM (SELECT {new}) WHERE {unique.condition})"  # noqa: S608
    return f"({stands} AND {counts})"


def _sqlite_rule(model: type[Model], rule: registry.RowRule) -> Iterator[Trigger]:
    table = model._meta.db_table
    for event in rule.events:
        name = f"{_PREFIX}{rule.name}_on_{event}"
        yield _sqlite_trigger(table, name, event.upper(), rule.broken, rule.message)


# --- PostgreSQL -----------------------------------------------------------------------------------

_REFUSE = (
    f"CREATE OR REPLACE FUNCTION {_FUNCTION}() RETURNS trigger LANGUAGE plpgsql AS $$ "
    "BEGIN RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'integrity_constraint_violation'; "
    "END $$"
)

#: Two transactions must not each see the tables without the other's row: serialised rules lock.
_ROW_RULE_LOCK = 0x626F6F6B


def _postgresql_protection(
    model: type[Model], protection: registry.Protection, connection: BaseDatabaseWrapper
) -> Iterator[Trigger]:
    table, message = model._meta.db_table, _sentence(model, protection)
    changed = " OR ".join(
        f'OLD."{column}" IS DISTINCT FROM NEW."{column}"' for column in _columns(model, protection)
    )
    scopes = {
        "update": f"FOR EACH ROW WHEN ({changed})" if protection.columns else "FOR EACH ROW",
        "delete": "FOR EACH ROW",
        "truncate": "FOR EACH STATEMENT",
    }
    for event, scope in scopes.items():
        name = f"{_PREFIX}{table}_keeps_on_{event}"
        create = (
            f'CREATE TRIGGER "{name}" BEFORE {event.upper()} ON "{table}" {scope} '
            f"EXECUTE FUNCTION {_FUNCTION}({_quoted(message)})"
        )
        yield Trigger(table, name, (_REFUSE, create))


def _postgresql_rule(model: type[Model], rule: registry.RowRule) -> Iterator[Trigger]:
    table, name = model._meta.db_table, _PREFIX + rule.name
    lock = f"PERFORM pg_advisory_xact_lock({_ROW_RULE_LOCK}); " if rule.serialised else ""
    events = " OR ".join(event.upper() for event in rule.events)
    function = (
        f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"{lock}IF {rule.broken} THEN RAISE EXCEPTION '%', {_quoted(rule.message)} "
        "USING ERRCODE = 'integrity_constraint_violation'; END IF; RETURN NEW; END $$"
    )
    create = (
        f'CREATE TRIGGER "{name}" BEFORE {events} ON "{table}" FOR EACH ROW '
        f"EXECUTE FUNCTION {name}()"
    )
    yield Trigger(table, name, (function, create))


_RENDERERS: dict[str, Any] = {
    "sqlite": (_sqlite_protection, _sqlite_rule),
    "postgresql": (_postgresql_protection, _postgresql_rule),
}


# --- What stands ----------------------------------------------------------------------------------


def _tables(connection: BaseDatabaseWrapper) -> set[str]:
    return set(connection.introspection.table_names())


def _standing(connection: BaseDatabaseWrapper) -> dict[str, Standing]:
    """Our triggers, by name."""
    with connection.cursor() as cursor:
        cursor.execute(_LIST[connection.vendor])
        rows = cursor.fetchall()
    return {name: Standing(*rest) for name, *rest in rows if name.startswith(_PREFIX)}


def _stands(trigger: Trigger, standing: dict[str, Standing]) -> bool:
    found = standing.get(trigger.name)
    if found is None or found.table != trigger.table or not found.enabled:
        return False
    return found.text is None or found.text == trigger.create[-1]


_LIST = {
    "sqlite": "SELECT name, tbl_name, sql, 1 FROM sqlite_master WHERE type = 'trigger'",
    "postgresql": (
        "SELECT t.tgname, c.relname, NULL, t.tgenabled IN ('O', 'A') "
        "FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid "
        "WHERE NOT t.tgisinternal AND pg_table_is_visible(c.oid)"
    ),
}

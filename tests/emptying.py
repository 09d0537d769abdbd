"""How a transactional test ends: the database is again as the migrations left it.

Django's own way truncates every table, announces `post_migrate` and so makes all content types,
permissions and triggers anew, which costs more than most tests. Here SQLite's database is copied
back from a copy in memory, and PostgreSQL empties what holds rows, in one statement. Where that is
not possible (a thread still reads; a user who may not switch triggers off; a test that changed a
trigger), Django's way follows.
"""

from __future__ import annotations

import hashlib
import sqlite3
from typing import Any

from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import DEFAULT_DB_ALIAS, connections
from django.test import TransactionTestCase

from guards import triggers

#: SQLite's own numbers for a database, and a table, that somebody else uses.
_BUSY, _LOCKED = 5, 6

#: Where PostgreSQL keeps the rows that migrations make.
_SCHEMA = "pristine"

_TABLES = """
    SELECT tablename FROM pg_tables
    WHERE schemaname = 'public' AND tablename <> 'django_migrations'
"""

_TRIGGERS = """
    SELECT coalesce(string_agg(pg_get_triggerdef(t.oid) || t.tgenabled::text || p.prosrc, ';'
        ORDER BY pg_get_triggerdef(t.oid)), '')
    FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid WHERE NOT t.tgisinternal
"""

_EMPTY = f"""
    DO $$
    DECLARE
        name text;
        is_filled boolean;
    BEGIN
        SET LOCAL session_replication_role = replica;
        FOR name IN {_TABLES} LOOP
            EXECUTE format('SELECT EXISTS (SELECT 1 FROM public.%I)', name) INTO is_filled;
            IF is_filled THEN
                EXECUTE format('DELETE FROM public.%I', name);
            END IF;
        END LOOP;
        FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = '{_SCHEMA}' LOOP
            EXECUTE format('INSERT INTO public.%I TABLE {_SCHEMA}.%I', name, name);
        END LOOP;
    END $$
"""  # noqa: S608  (nothing of it comes from outside)

_copy: sqlite3.Connection | None = None
_standing = ""


def remember() -> None:
    """Keep what a migrated database holds, before the first test."""
    global _copy, _standing
    connection = connections[DEFAULT_DB_ALIAS]
    connection.ensure_connection()
    if connection.vendor == "sqlite":
        _copy = sqlite3.connect(":memory:", check_same_thread=False)
        connection.connection.backup(_copy)
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT usesuper FROM pg_user WHERE usename = current_user")
        if cursor.fetchone() != (True,):
            return
        cursor.execute(f"DROP SCHEMA IF EXISTS {_SCHEMA} CASCADE")
        cursor.execute(f"CREATE SCHEMA {_SCHEMA}")
        cursor.execute(_TABLES)
        for (table,) in cursor.fetchall():
            cursor.execute(f'SELECT EXISTS (SELECT 1 FROM "{table}")')  # noqa: S608
            if cursor.fetchone() == (True,):
                cursor.execute(f'CREATE TABLE {_SCHEMA}."{table}" AS TABLE public."{table}"')
    _standing = _triggers()


def empty() -> None:
    """Make the database what it was."""
    if not (_restored() if connections[DEFAULT_DB_ALIAS].vendor == "sqlite" else _emptied()):
        for label in triggers.protected_apps():
            triggers.lift(label)
        call_command("flush", verbosity=0, interactive=False, reset_sequences=False)
    ContentType.objects.clear_cache()


def _restored() -> bool:
    connection = connections[DEFAULT_DB_ALIAS]
    connection.ensure_connection()
    if _copy is None:
        return False
    try:
        _copy.backup(connection.connection, progress=_give_up_where_it_is_used)
    except BlockingIOError:
        return False
    return True


def _give_up_where_it_is_used(status: int, *_: int) -> None:
    """SQLite's copying would wait for another connection, and it may never end."""
    if status in (_BUSY, _LOCKED):
        raise BlockingIOError


def _emptied() -> bool:
    if not _standing or _triggers() != _standing:
        return False
    with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
        cursor.execute(_EMPTY)
    return True


def _triggers() -> str:
    with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
        cursor.execute(_TRIGGERS)
        return hashlib.sha256(cursor.fetchone()[0].encode()).hexdigest()


def use_it() -> None:
    """From now on, transactional tests end like this."""

    def end(self: TransactionTestCase, *_: Any) -> None:
        empty()

    TransactionTestCase._fixture_teardown = end  # type: ignore[attr-defined]

"""System checks: faults of the installation that nobody would see until they did harm.

The queue's settings have their own module, `guards.queue.checks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.core import checks
from django.core.checks import CheckMessage, Error, Warning
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.dispatch import Signal

from guards import signals, triggers
from guards.types import HOUSE_CHECKS

#: Milliseconds; below it, three writers at once fail with "database is locked".
LEAST_BUSY_TIMEOUT = 5000

_FULL = 2

_RECORDED: tuple[tuple[str, Signal], ...] = (
    ("decided", signals.decided),
    ("key_changed", signals.key_changed),
    ("permission_changed", signals.permission_changed),
    ("token_changed", signals.token_changed),
    ("unit_closing", signals.unit_closing),
)


def register() -> None:
    """Called once by guards' `ready()`."""
    checks.register(check_receivers, HOUSE_CHECKS)
    checks.register(check_sqlite, checks.Tags.database)
    checks.register(check_triggers, checks.Tags.database)


def check_receivers(app_configs: Sequence[object] | None, **_: object) -> list[CheckMessage]:
    """Refuse an installation in which decisions would not reach the event log."""
    return [
        Error(
            f"Nobody listens to guards.signals.{name}: acts would leave no event.",
            hint="Keep `teams` in INSTALLED_APPS; its ready() connects the event log.",
            id="guards.E001",
        )
        for name, signal in _RECORDED
        if not signal.has_listeners(None)
    ]


def check_sqlite(
    app_configs: Sequence[object] | None, databases: Iterable[str] | None = None, **_: object
) -> list[CheckMessage]:
    """Read the real PRAGMAs: an option in the wrong dictionary has no effect, silently."""
    return [
        message
        for alias in databases or ()
        if connections[alias].vendor == "sqlite"
        for message in _pragma_faults(connections[alias])
    ]


def check_triggers(
    app_configs: Sequence[object] | None, databases: Iterable[str] | None = None, **_: object
) -> list[CheckMessage]:
    """Warn of protected tables without their triggers; an empty database is not one of them."""
    messages: list[CheckMessage] = []
    for alias in databases or ():
        if "guards_decision" not in connections[alias].introspection.table_names():
            continue
        absent = triggers.missing(alias)
        if absent:
            messages.append(
                Warning(
                    f"The database lacks triggers that keep the record: {', '.join(absent)}.",
                    hint="Run `manage.py migrate`: it installs them again.",
                    id="guards.W004",
                )
            )
    return messages


def _pragma_faults(connection: BaseDatabaseWrapper) -> Iterable[CheckMessage]:
    timeout = _pragma(connection, "busy_timeout")
    if not isinstance(timeout, int) or timeout < LEAST_BUSY_TIMEOUT:
        yield Error(
            f"SQLite waits {timeout} ms for a lock, and fails with `database is locked` then.",
            hint="Set OPTIONS['timeout'] to 20 (seconds).",
            id="guards.E002",
        )
    if getattr(connection, "transaction_mode", None) != "IMMEDIATE":
        yield Error(
            "SQLite's transactions begin deferred: a read then a write fails, timeout or not.",
            hint="Set OPTIONS['transaction_mode'] to 'IMMEDIATE'.",
            id="guards.E003",
        )
    if str(connection.settings_dict["NAME"]).startswith(("file:memorydb", ":memory:")):
        return
    journal = _pragma(connection, "journal_mode")
    if journal != "wal":
        yield Error(
            f"SQLite's journal_mode is {journal}: readers and the writer block each other.",
            hint="Put `PRAGMA journal_mode=WAL;` into OPTIONS['init_command'].",
            id="guards.E004",
        )
    synchronous = _pragma(connection, "synchronous")
    if not isinstance(synchronous, int) or synchronous < _FULL:
        yield Error(
            "SQLite does not sync each commit: the mark of a send could be lost with the power.",
            hint="Put `PRAGMA synchronous=FULL;` into OPTIONS['init_command'].",
            id="guards.E005",
        )


def _pragma(connection: BaseDatabaseWrapper, name: str) -> object:
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA {name}")
        row = cursor.fetchone()
    return row[0] if row else None

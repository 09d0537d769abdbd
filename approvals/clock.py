"""The database's clock: what is expired is decided by one clock, whichever process asks."""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import connection

_NOW = {
    "sqlite": "SELECT strftime('%Y-%m-%dT%H:%M:%f', 'now')",
    "postgresql": "SELECT clock_timestamp()",
}


def database_now() -> datetime:
    """The time as the database sees it, in UTC; milliseconds on SQLite."""
    with connection.cursor() as cursor:
        cursor.execute(_NOW[connection.vendor])
        (now,) = cursor.fetchone()
    if isinstance(now, str):
        now = datetime.fromisoformat(now).replace(tzinfo=UTC)
    moment: datetime = now.astimezone(UTC)
    return moment

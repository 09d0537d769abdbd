"""The queue's timetable: our own rows are kept as written here, rows nobody may run are removed.

django-q2's scheduler is off in the worker's cluster (`Q_CLUSTER["scheduler"]`): it would read a row
and trust it. The worker calls `run_due` instead, which looks at the rows first.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.utils import timezone
from django_q.brokers import get_broker
from django_q.models import Schedule
from django_q.scheduler import scheduler

from guards.queue import enqueue, is_task
from guards.queue.admission import HOOK, SCHEDULE, announce, refusal_of
from guards.services.units import unit_of_work

#: Minutes of the longest interval that a row may have.
_LONGEST = 60 * 24 * 31
#: A row that was due before this is from long ago.
_LONG_AGO = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Entry:
    """One task that runs every so many minutes. It takes no arguments."""

    name: str
    task: str
    minutes: int = 1


def ensure(entries: Iterable[Entry]) -> None:
    """Write these entries' rows, so that each exists once and as given. Others are left alone."""
    with unit_of_work():
        for entry in entries:
            rows = Schedule.objects.filter(name=entry.name)
            wanted = {
                "func": entry.task,
                "hook": None,
                "args": None,
                "kwargs": None,
                "schedule_type": Schedule.MINUTES,
                "minutes": entry.minutes,
                "repeats": -1,
            }
            first = rows.order_by("pk").values_list("pk", flat=True).first()
            if first is None:
                Schedule.objects.create(name=entry.name, next_run=timezone.now(), **wanted)
            else:
                rows.exclude(pk=first).delete()
                rows.filter(pk=first).update(**wanted)


def enqueue_all(entries: Iterable[Entry]) -> None:
    """Put each entry's task onto the queue now: a worker that starts looks at everything once."""
    for entry in entries:
        enqueue(entry.task)


def remove_refused() -> int:
    """Delete schedule rows that nobody may run or nobody can, and announce each. Their number.

    django-q2 reads all due rows in one transaction: a single one that it cannot read would hold up
    all the others for ever.
    """
    removed = 0
    for row in Schedule.objects.order_by("pk"):
        refusal = _refusal(row)
        if refusal is None:
            continue
        with unit_of_work():
            if Schedule.objects.filter(pk=row.pk).delete()[0]:
                announce(where=refusal[0], path=refusal[1])
                removed += 1
    return removed


def set_right() -> int:
    """Make rows due at once that wait longer than they should, or since long ago. Their number.

    The clock may have gone back, and a row from long ago would be counted up minute by minute.
    """
    now = timezone.now()
    changed = 0
    for row_id, minutes, next_run in Schedule.objects.values_list("pk", "minutes", "next_run"):
        latest = now + timedelta(minutes=minutes or 1)
        if next_run is None or not now - _LONG_AGO <= next_run <= latest:
            changed += Schedule.objects.filter(pk=row_id).update(next_run=now)
    return changed


def _refusal(row: Schedule) -> tuple[str, str] | None:
    """Where and what the first thing in this row is that must not run, or that no entry has."""
    if not is_task(row.func):
        return SCHEDULE, row.func
    if row.hook and not is_task(row.hook):
        return HOOK, row.hook
    options = _options(row.kwargs or "{}")
    named = refusal_of({"func": row.func, **options}) if options is not None else None
    if named is not None:
        return named
    plain = not (row.args or row.kwargs or row.hook or row.intended_date_kwarg)
    every = row.schedule_type == Schedule.MINUTES and 1 <= (row.minutes or 0) <= _LONGEST
    return None if plain and every else (SCHEDULE, row.func)


def _options(keywords: str) -> dict[str, Any] | None:
    """The queue's options inside a row's keywords; None unless they are a plain dictionary."""
    try:
        values = ast.literal_eval(keywords)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    if not isinstance(values, dict):
        return None
    nested = values.get("q_options", {})
    return {**values, **nested} if isinstance(nested, dict) else None


def run_due() -> None:
    """Remove refused rows, then let django-q2 enqueue what is due. Outside a transaction only."""
    remove_refused()
    set_right()
    scheduler(broker=get_broker())

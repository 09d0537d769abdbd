"""The queue's timetable: our own rows are kept as written here, rows nobody may run are removed.

django-q2's scheduler is off in the worker's cluster (`Q_CLUSTER["scheduler"]`): it would read a row
and trust it. The worker calls `run_due` instead, which looks at the rows first.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.utils import timezone
from django_q.brokers import get_broker
from django_q.models import Schedule
from django_q.scheduler import scheduler

from guards.queue import enqueue, is_task
from guards.queue.admission import HOOK, SCHEDULE, announce, refusal_of
from guards.services.units import unit_of_work


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
    """Delete schedule rows that name what nobody may run, and announce each. Their number."""
    removed = 0
    rows = Schedule.objects.values_list("pk", "func", "hook", "kwargs")
    for row_id, function, hook, keywords in rows:
        refusal = _refusal(function, hook, keywords)
        if refusal is None:
            continue
        with unit_of_work():
            if Schedule.objects.filter(pk=row_id).delete()[0]:
                announce(where=refusal[0], path=refusal[1])
                removed += 1
    return removed


def _refusal(function: str, hook: str | None, keywords: str | None) -> tuple[str, str] | None:
    if not is_task(function):
        return SCHEDULE, function
    if hook and not is_task(hook):
        return HOOK, hook
    if not keywords:
        return None
    options = _options(keywords)
    return (SCHEDULE, function) if options is None else refusal_of({"func": function, **options})


def _options(keywords: str) -> dict[str, Any] | None:
    """The queue's options inside a row's keywords; None unless they are a plain dictionary.

    django-q2 reads a second form too (`name=value`), which none of our rows has.
    """
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
    scheduler(broker=get_broker())

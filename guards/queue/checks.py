"""System checks of the queue's settings: the defaults of django-q2 repeat work that was done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error

Rule = tuple[str, Callable[[Mapping[str, Any]], bool], str, str]

_BROKERS = ("guards.queue.brokers.OrmBroker", "guards.queue.redis_broker.RedisBroker")


def _retry_is_long_enough(queue: Mapping[str, Any]) -> bool:
    timeout = queue.get("timeout") or 0
    limit = queue.get("queue_limit", int(queue.get("workers", 1)) ** 2)
    return int(queue.get("retry", 60)) > (int(limit) + 2) * int(timeout)


_RULES: tuple[Rule, ...] = (
    (
        "guards.E101",
        lambda queue: queue.get("broker_class") in _BROKERS,
        "The queue's broker runs functions that nobody registered.",
        f"Set Q_CLUSTER['broker_class'] to one of {', '.join(_BROKERS)}.",
    ),
    (
        "guards.E102",
        lambda queue: bool(queue.get("timeout")),
        "The queue has no timeout: a task that hangs is taken again for ever.",
        "Set Q_CLUSTER['timeout'] in seconds.",
    ),
    (
        "guards.E103",
        _retry_is_long_enough,
        "The queue gives a task out again while it may still be running.",
        "Keep Q_CLUSTER['retry'] > (queue_limit + 2) × timeout.",
    ),
    (
        "guards.E104",
        lambda queue: queue.get("max_attempts") == 1 and bool(queue.get("ack_failures")),
        "The queue repeats a task that failed.",
        "Set Q_CLUSTER['max_attempts'] to 1 and ['ack_failures'] to True.",
    ),
    (
        "guards.E105",
        lambda queue: int(queue.get("save_limit", 250)) < 0,
        "The queue keeps results as pickles and reads them back: a written row would be code.",
        "Set Q_CLUSTER['save_limit'] to -1.",
    ),
    (
        "guards.E106",
        lambda queue: queue.get("scheduler") is False,
        "The cluster's own scheduler trusts every row of its table.",
        "Set Q_CLUSTER['scheduler'] to False; `manage.py worker` runs the timetable.",
    ),
    (
        "guards.E107",
        lambda queue: queue.get("bulk", 1) == 1,
        "The queue takes several tasks at once, and their locks run while they wait.",
        "Set Q_CLUSTER['bulk'] to 1.",
    ),
)


def check_queue(app_configs: Sequence[object] | None, **_: object) -> list[CheckMessage]:
    """Refuse settings under which one act could happen twice or a written row could run."""
    return [
        Error(message, hint=hint, id=identifier)
        for identifier, holds, message, hint in _RULES
        if not holds(settings.Q_CLUSTER)
    ]

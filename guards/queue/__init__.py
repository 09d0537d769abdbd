"""The queue's door: which functions may be tasks, and how one is put onto the queue.

A queue row names a function by its dotted path, so a row is code: only functions registered here
run, however their row came about. The row that is *due* is the truth; a task only says "look now".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from django.db import transaction

Function = TypeVar("Function", bound=Callable[..., Any])

_tasks: set[str] = set()


def task(function: Function) -> Function:
    """Register a module-level function as a task."""
    _tasks.add(f"{function.__module__}.{function.__qualname__}")
    return function


def is_task(path: str) -> bool:
    """Whether this dotted path may run."""
    return path in _tasks


def task_paths() -> frozenset[str]:
    """All registered tasks."""
    return frozenset(_tasks)


def enqueue(path: str, *args: str | int) -> None:
    """Put a task onto the queue once the current transaction commits (at once outside of one).

    ValueError for a path that is not registered: a typing error must not become a dead row.
    """
    if not is_task(path):
        raise ValueError(f"{path!r} is not a registered task")

    def send() -> None:
        from django_q.tasks import async_task

        async_task(path, *args)

    transaction.on_commit(send)

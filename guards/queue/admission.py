"""Which packages of the queue may run: every function and hook in them must be a registered task.

A package can name code in four places: its function, its hook, and both again in each link of its
chain (whose own options may nest a chain). All of them are looked at, before anything is imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import structlog
from django_q.signing import BadSignature, SignedPackage

from guards.exceptions import TaskRefused
from guards.queue import is_task
from guards.signals import task_refused

logger = structlog.get_logger(__name__)

#: Where a refused path was found: the `where` of `guards.signals.task_refused`.
QUEUE, SCHEDULE, HOOK = "queue", "schedule", "hook"

#: What is said of a package whose signature does not verify: it names nothing that can be trusted.
UNREADABLE = "(unreadable package)"


def path_of(function: object) -> str:
    """The dotted path of a function as a package holds it: text already, or the object itself."""
    if isinstance(function, str):
        return function
    module = getattr(function, "__module__", "")
    name = getattr(function, "__qualname__", type(function).__name__)
    return f"{module}.{name}"


def _links(chain: object) -> Iterator[tuple[str, object]]:
    for link in chain if isinstance(chain, (list, tuple)) else ():
        parts = link if isinstance(link, tuple) else (link,)
        yield QUEUE, parts[0] if parts else ""
        if len(parts) > 2 and isinstance(parts[2], Mapping):
            yield from _named(parts[2])
            yield from _named(parts[2].get("q_options") or {})


def _named(options: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    if options.get("hook"):
        yield HOOK, options["hook"]
    yield from _links(options.get("chain"))


def refusal_of(task: Mapping[str, Any]) -> tuple[str, str] | None:
    """Where and what the first unregistered function of this task is; None when it may run."""
    for where, function in ((QUEUE, task.get("func", "")), *_named(task)):
        path = path_of(function)
        if not is_task(path):
            return where, path
    return None


def refusal_of_package(package: str | bytes) -> tuple[str, str] | None:
    """The same for a signed package; one that was not signed by us is refused as unreadable."""
    try:
        task = SignedPackage.loads(package)
    except (TypeError, ValueError, BadSignature):
        return QUEUE, UNREADABLE
    return refusal_of(task)


def announce(*, where: str, path: str) -> None:
    """Say in the log and to upper apps that a row was refused. Call it inside a unit of work."""
    logger.warning("task refused", where=where, path=path)
    task_refused.send(sender=None, path=path, where=where)


def refuse_before_signing(sender: object, task: dict[str, Any], **_: object) -> None:
    """Receiver of django-q2's `pre_enqueue`: nothing unregistered is ever signed.

    It also stands between a schedule row and its `sync` option, which would run the function where
    the row is read, past every broker.
    """
    refusal = refusal_of(task)
    if refusal is not None:
        where, path = refusal
        logger.warning("task refused", where=where, path=path)
        raise TaskRefused(f"{path!r} is not a registered task")

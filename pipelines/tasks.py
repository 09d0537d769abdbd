"""What the queue may call: load, call the service."""

from __future__ import annotations

from uuid import UUID

from guards import queue
from guards.queue import task
from mail import selectors as mail
from pipelines.runners.claude import lodging
from pipelines.services import (
    acknowledging,
    clearing,
    execution,
    intake,
    recovery,
    tool_calls,
    waking,
)


@task
def take_in(message_id: int) -> None:
    """Make an admitted message's pipeline and carry it out, in one go, and what is due next."""
    pipeline = intake.take_in(message_id=message_id)
    if pipeline is not None:
        execution.run_on(pipeline_id=pipeline.pk)


@task
def run_pipeline(pipeline_id: str) -> None:
    """Carry a due pipeline out, and what is due next."""
    execution.run_on(pipeline_id=UUID(pipeline_id))


@task
def sweep() -> None:
    """Recover what a crash left, and look again at whatever is due.

    In any order: a hundred messages that cannot be begun must not keep the next ones waiting.
    """
    recovery.recover()
    tool_calls.expire_due()
    tool_calls.take_back()
    waking.take_answers()
    acknowledging.sweep()
    due = mail.due_messages().order_by("?")
    for message_id in due.values_list("pk", flat=True)[:100]:
        queue.enqueue("pipelines.tasks.take_in", message_id)
    waking.wake_next()


@task
def sweep_files() -> None:
    """Remove the directories of pipelines and missions whose time is over, and orphans."""
    clearing.sweep()
    lodging.sweep()


@task
def take_back_questions() -> None:
    """Close what waits for a person although its question has ended."""
    tool_calls.take_back()

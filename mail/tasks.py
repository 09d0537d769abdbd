"""Tasks of mail: load, call the service. The rows that are due are the truth, a task only looks."""

from __future__ import annotations

import structlog

from guards.exceptions import CountersignError
from guards.queue import task
from mail.services import due, filing, mailed_answers, notices, polling, trust

log = structlog.get_logger(__name__)


@task
def poll_account(account_id: int) -> None:
    """One pass over one account; what fails is counted with the account and tried again later."""
    try:
        polling.poll(account_id=account_id)
    except CountersignError as error:
        log.warning("mail.poll_failed", account=account_id, reason=error.code)


@task
def poll_due() -> None:
    """Once a minute: polls that are due and that no watcher makes, and whatever else waits."""
    due.sweep()


@task
def recompute_trust(contact_id: int, fingerprint: str) -> None:
    """A key changed: look again at what it may speak about."""
    trust.recompute_for_key(contact_id=contact_id, fingerprint=fingerprint)


@task
def answer_mail(answer_id: int) -> None:
    """A mail speaks of an order: carry it out, or say why not."""
    mailed_answers.settle(answer_id=answer_id)


@task
def notify_owner() -> None:
    """Something waits for a person: tell the owner, if that is due."""
    notices.notify()


@task
def file_sent(outbound_id: str) -> None:
    """Put a copy of accepted mail into Sent."""
    filing.file_sent(outbound_id=outbound_id)

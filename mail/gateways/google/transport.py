"""What the protocol `gmail` has for those who know an endpoint alone: nothing is read or sent so.

A Gmail label is opened for an account, with its connection (`services.mailboxes`). A message leaves
through Gmail as an exact reply (`mail.gmail`), and never as mail of this protocol.
"""

from __future__ import annotations

from collections.abc import Sequence

from mail.exceptions import MailboxReadOnly
from mail.gateways.base import (
    SESSION_SECONDS,
    Endpoint,
    Mailbox,
    SendOutcome,
    Submission,
    SubmissionResult,
)
from mail.types import SendReason


class GmailTransport:
    """Refuses what needs more than reading."""

    def __init__(self) -> None:
        self.submission: Submission = NoSubmission()

    def open_mailbox(self, endpoint: Endpoint) -> Mailbox:
        """MailboxReadOnly: with a host and a password nothing of Gmail is opened."""
        raise MailboxReadOnly


class NoSubmission:
    """A read-only account has no way out."""

    def send(
        self,
        endpoint: Endpoint,
        *,
        envelope_from: str,
        recipients: Sequence[str],
        payload: bytes,
        copies: Sequence[str] = (),
        seconds: float = SESSION_SECONDS,
    ) -> SubmissionResult:
        """Failed for certain, without a contact."""
        return SubmissionResult(SendOutcome.FAILED, SendReason.READ_ONLY)

    def refusal(self, endpoint: Endpoint, *, envelope_from: str) -> SubmissionResult | None:
        """Always."""
        return SubmissionResult(SendOutcome.FAILED, SendReason.READ_ONLY)

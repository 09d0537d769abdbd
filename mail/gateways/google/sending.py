"""The one request that changes something: a message resource, posted as the bytes it was given."""

from __future__ import annotations

from guards.exceptions import InvalidInput
from guards.secrets import Secret
from mail.gateways.google import answers
from mail.gateways.google.base import (
    SEND_BYTES,
    BadAnswer,
    GoogleError,
    SendAnswer,
    SendKind,
)
from mail.gateways.google.http import Host, Request, Response


def send_request(token: Secret, request_json: bytes) -> Request:
    """The POST. InvalidInput where there is nothing to send, or more than may be."""
    if not 0 < len(request_json) <= SEND_BYTES:
        raise InvalidInput(f"request_json must have 1 to {SEND_BYTES} bytes", field="request_json")
    return Request(
        "POST",
        Host.GMAIL,
        "/gmail/v1/users/me/messages/send",
        token=token.reveal(),
        body=request_json,
        content_type="application/json",
    )


def read_send(response: Response) -> SendAnswer:
    """What a whole answer says. Never raises: whatever it is, the request has been made."""
    status = response.status
    if status != 200:
        return SendAnswer(SendKind.REFUSED, f"http-{status}", status)
    try:
        fields = answers.opened(response)
        return SendAnswer(
            SendKind.TAKEN,
            "http-200",
            status,
            message_id=fields.id("id"),
            thread_id=fields.id("threadId"),
            labels=fields.labels("labelIds"),
        )
    except BadAnswer as error:
        return SendAnswer(SendKind.UNREADABLE, error.reason, status, field=error.field or "")


def without_answer(error: GoogleError) -> SendAnswer:
    """What is known where no whole answer came."""
    kind = SendKind.LOST if error.begun else SendKind.NOT_BEGUN
    return SendAnswer(kind, error.reason, field=error.field or "")

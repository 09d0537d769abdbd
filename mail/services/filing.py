"""Files a copy of what was sent where the server does not do so itself. The copy proves nothing."""

from __future__ import annotations

from uuid import UUID

import structlog
from django.utils import timezone

from approvals.services import artifacts
from mail import endpoints
from mail.exceptions import TransportError
from mail.models import Outbound
from mail.registry import transport

log = structlog.get_logger(__name__)


def needs_filing(outbound: Outbound) -> bool:
    """Whether the account wants a copy in Sent that nobody else puts there."""
    account = outbound.account
    return (
        outbound.status == Outbound.Status.ACCEPTED
        and bool(account.sent_folder)
        and not account.server_files_sent
    )


def file_sent(*, outbound_id: UUID | str) -> bool:
    """Append the exact bytes that were accepted, once; False where there is nothing to file."""
    outbound = Outbound.objects.select_related("account", "effect__payload").get(pk=outbound_id)
    if outbound.effect is None or not needs_filing(outbound):
        return False
    account = outbound.account
    payload = artifacts.unseal(outbound.effect.payload)
    try:
        with transport(account.protocol).open_mailbox(endpoints.incoming(account)) as mailbox:
            mailbox.select(account.sent_folder)
            if mailbox.find(outbound.message_id):
                return False
            _note_filing(outbound)
            mailbox.append(account.sent_folder, payload, outbound.settled_at or timezone.now())
    except TransportError as error:
        log.warning("mail.not_filed", outbound=str(outbound_id), reason=error.code)
        return False
    return True


def _note_filing(outbound: Outbound) -> None:
    """Say so first: whatever becomes of the copy, it is none of the server's own."""
    Outbound.objects.filter(pk=outbound.pk, filed_at=None).update(filed_at=timezone.now())

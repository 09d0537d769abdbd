"""Opening an account's mailbox, however its protocol is spoken."""

from __future__ import annotations

from mail import endpoints
from mail.gateways.base import Mailbox
from mail.models import Account
from mail.registry import transport
from mail.services import gmail_reading
from mail.services.leases import Lease


def open_mailbox(*, account: Account, lease: Lease) -> Mailbox:
    """Connect and log in, under a lease that the caller keeps. TransportError says what failed."""
    if account.protocol == Account.Protocol.GMAIL:
        return gmail_reading.open_mailbox(account=account, lease=lease)
    return transport(account.protocol).open_mailbox(endpoints.incoming(account))


def refuse_vain(account: Account) -> None:
    """Where a person has to act first nothing is tried: NeedsReconnect or ContactRefused."""
    if account.protocol == Account.Protocol.GMAIL:
        gmail_reading.refuse_not_connected(account)

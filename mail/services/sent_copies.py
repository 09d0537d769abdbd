"""Whether an account's server files what it sends by itself: shown by what lies in Sent.

No question to a server answers this, so it is read off the account's own last messages: a copy that
we did not append is the server's. A copy of ours is marked before it is appended (`filed_at`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django.utils import timezone

from approvals.models import Effect
from approvals.services import artifacts
from mail import readback
from mail.gateways.base import Mailbox
from mail.models import Account, Outbound

#: So many of the last messages are looked at, and none larger than this.
RECENT = 5
LARGEST = 1024 * 1024
#: The act whose payload is the message as it left.
_KIND = "mail.smtp"
#: Servers file a copy a moment after they said 250.
SETTLED = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Shown:
    """Of `looked` messages the server filed `by_server`, exactly as they were sent."""

    looked: int
    by_server: int


def shown(account: Account, mailbox: Mailbox) -> Shown:
    """Look for the account's last messages in Sent, read-only. TransportError as it comes."""
    looked = by_server = 0
    mailbox.select(account.sent_folder)
    for outbound in _recent(account):
        looked += 1
        by_server += _copies(mailbox, outbound) > (outbound.filed_at is not None)
    return Shown(looked, by_server)


def judged(account: Account, mailbox: Mailbox) -> tuple[bool, str]:
    """Whether the account says the right thing about its server, and what to do where not."""
    found = shown(account, mailbox)
    if found.by_server and not account.server_files_sent:
        return False, (
            f"the server itself filed {found.by_server} of the last {found.looked} messages: say "
            "so (Files its own Sent copy), then what is sent can be verified and is filed once"
        )
    if not account.server_files_sent:
        return True, "copies are filed by us; they prove nothing"
    if not found.looked:
        return True, "not shown yet: send a message from this account, and ask again in a minute"
    if not found.by_server:
        return False, (
            f"none of the last {found.looked} messages lies in {account.sent_folder} as it was "
            "sent: this server does not file them. Switch off Files its own Sent copy"
        )
    return True, f"the server filed {found.by_server} of the last {found.looked} messages"


def _recent(account: Account) -> list[Outbound]:
    done = Outbound.objects.filter(
        account=account,
        effect__kind=_KIND,
        effect__phase__in=Effect.DONE,
        effect__payload__size__lte=LARGEST,
        settled_at__lte=timezone.now() - SETTLED,
    )
    return list(done.select_related("effect__payload").order_by("-settled_at")[:RECENT])


def _copies(mailbox: Mailbox, outbound: Outbound) -> int:
    """How many messages in the open folder are exactly this one."""
    if outbound.effect is None:
        return 0
    uids = mailbox.find(outbound.message_id)[: readback.CANDIDATES]
    if not uids:
        return 0
    sent = artifacts.unseal(outbound.effect.payload)
    return sum(readback.is_same(one.raw, sent) for one in mailbox.fetch(uids).messages)

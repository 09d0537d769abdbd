"""The tables of mail: accounts, what arrived, and what was written to leave."""

from __future__ import annotations

from mail.models.accounts import Account, AccountLease, FolderCursor, GmailMessage
from mail.models.leaving import Outbound, OutboundFile
from mail.models.messages import Location, Message, Part, Recipient, Thread, TrustRecord
from mail.models.owner import MailedAnswer, NoticeItem, OwnerNotice

__all__ = [
    "Account",
    "AccountLease",
    "FolderCursor",
    "GmailMessage",
    "Location",
    "MailedAnswer",
    "Message",
    "NoticeItem",
    "Outbound",
    "OutboundFile",
    "OwnerNotice",
    "Part",
    "Recipient",
    "Thread",
    "TrustRecord",
]

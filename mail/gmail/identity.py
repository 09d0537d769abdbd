"""Whose credentials these are: what Google says with the very token that is used next (ADR-016).

Nothing is normalised. Two addresses that differ in case, dots, a plus or an alias are two
addresses, and a subject is compared byte for byte.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256

from mail.exceptions import ProfileRefused
from mail.gateways.google.base import ABSENT, Profile, UserInfo
from mail.gmail.reasons import Reason

#: The one issuer of identities that counts. UserInfo comes from a fixed host and need not name it.
ISSUER = "https://accounts.google.com"
#: OpenID Connect bounds a subject to 255 ASCII characters.
MAX_SUBJECT_CHARS = 255
MAX_ADDRESS_CHARS = 254

_SUBJECT = re.compile(r"[\x21-\x7e]+")
_TEXT = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_ADDRESS = re.compile(rf"{_TEXT}(?:\.{_TEXT})*@{_LABEL}(?:\.{_LABEL})+")


@dataclass(frozen=True, slots=True)
class Identity:
    """One Google account, as one token proved it: its subject and its verified address."""

    subject: str
    address: str
    issuer: str = ISSUER

    @property
    def digest(self) -> str:
        """SHA-256, hex, over issuer, subject and address exactly as they were observed."""
        return sha256("\n".join((self.issuer, self.subject, self.address)).encode()).hexdigest()


def read_userinfo(answer: UserInfo) -> Identity:
    """The account that a UserInfo answer proves; ProfileRefused names the claim that does not."""
    if len(answer.subject) > MAX_SUBJECT_CHARS or not _SUBJECT.fullmatch(answer.subject):
        raise ProfileRefused(Reason.USERINFO_MALFORMED, "no usable sub", field="sub")
    if not is_plain_address(answer.email):
        raise ProfileRefused(Reason.USERINFO_MALFORMED, "no plain address", field="email")
    if answer.email_verified is not True:
        raise ProfileRefused(Reason.EMAIL_NOT_VERIFIED, field="email_verified")
    if answer.issuer is not ABSENT and answer.issuer != ISSUER:
        raise ProfileRefused(Reason.ISSUER_FOREIGN, field="iss")
    return Identity(answer.subject, answer.email)


def require_same(read: Identity, send: Identity) -> None:
    """ProfileRefused unless both credentials belong to one account with one verified address."""
    if read.subject != send.subject or read.issuer != send.issuer:
        raise ProfileRefused(Reason.SUBJECTS_DIFFER, field="sub")
    if read.address != send.address:
        raise ProfileRefused(Reason.ADDRESSES_DIFFER, field="email")


def require_mailbox(profile: Profile, proven: Identity) -> None:
    """ProfileRefused unless the mailbox is, byte for byte, the verified address."""
    if profile.email != proven.address:
        raise ProfileRefused(Reason.MAILBOX_DIFFERS, field="mailbox")


def require_reviewed(observed: Identity, *, subject: str, address: str) -> None:
    """ProfileRefused unless this is the account that was reviewed when it was connected."""
    if observed.subject != subject:
        raise ProfileRefused(Reason.ACCOUNT_CHANGED, field="sub")
    if observed.address != address:
        raise ProfileRefused(Reason.ACCOUNT_CHANGED, field="email")


def is_plain_address(value: object) -> bool:
    """Whether this is one plain ASCII address that means the same to every reader."""
    return (
        isinstance(value, str)
        and len(value) <= MAX_ADDRESS_CHARS
        and _ADDRESS.fullmatch(value) is not None
    )

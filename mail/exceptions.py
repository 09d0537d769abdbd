"""What mail refuses, and how the outside fails. A docstring is the sentence that people read."""

from __future__ import annotations

from guards.exceptions import Conflict, CountersignError, Refused


class TransportError(CountersignError):
    """The mail server could not be reached, or stopped answering."""

    code = "mail-transport"
    permanent = False
    status = 502


class ConnectionLost(TransportError):
    """The connection to the mail server broke."""

    code = "mail-connection-lost"


class LoginRefused(TransportError):
    """The mail server refused the login."""

    code = "mail-login-refused"
    permanent = True


class FolderUnavailable(TransportError):
    """The folder cannot be opened."""

    code = "mail-folder-unavailable"
    permanent = True


class TlsRequired(TransportError):
    """The server offers no TLS, and mail never travels in plain text (DES-023)."""

    code = "mail-tls-required"
    permanent = True


class CertificateRefused(TransportError):
    """The server's certificate does not verify."""

    code = "mail-certificate-refused"
    permanent = True


class MailboxReadOnly(Refused):
    """This mailbox is only read: nothing in it is marked, moved, filed or sent."""

    code = "mailbox-read-only"
    rule = "mailbox-read-only"


class LeaseHeld(Conflict):
    """Another process works on this account right now."""

    code = "account-lease-held"
    permanent = False


class LeaseLost(Conflict):
    """This account was taken over by another process meanwhile: nothing was stored."""

    code = "account-lease-lost"
    permanent = False


class AccountDisabled(Refused):
    """The account is switched off."""

    code = "account-disabled"
    rule = "account-disabled"


class RawMissing(CountersignError):
    """The stored bytes of a message are missing or not those that were stored."""

    code = "raw-missing"
    status = 500


class ReplyRefused(Refused):
    """This message is not answered automatically; `rule` says why."""

    code = "reply-refused"


class FilesNotKept(CountersignError):
    """The files of an outgoing message could not be stored."""

    code = "files-not-kept"
    permanent = False
    status = 500


class ProfileRefused(CountersignError):
    """What the Gmail profile found is not what it must be; `reason` is the stable word for it."""

    code = "gmail-profile-refused"

    def __init__(self, reason: str, detail: str = "", *, field: str | None = None) -> None:
        self.reason = str(reason)
        super().__init__(detail or self.reason, field=field)

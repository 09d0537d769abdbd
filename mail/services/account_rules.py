"""What fits together in an account: its protocol, its server, and where its secrets are."""

from __future__ import annotations

from guards import secrets
from guards.exceptions import InvalidInput
from mail.models import Account
from mail.types import Provider

#: What a Gmail account's server is: nobody has to say so, and nothing else is taken.
GMAIL_SERVER = {"host": "gmail.googleapis.com", "port": 443, "provider": Provider.GMAIL.value}
#: What a mailbox that is only read has no use for.
_NOT_FOR_GMAIL = ("secret_ref", "sent_folder", "archive_folder", "smtp_host")


def refuse_unfit_references(account: Account) -> None:
    """InvalidInput where a secret's reference is none."""
    for name in ("secret_ref", "smtp_secret_ref"):
        try:
            if getattr(account, name):
                secrets.validate_reference(getattr(account, name))
        except InvalidInput as error:
            raise InvalidInput(error.detail, field=name) from error


def refuse_unfit_protocol(account: Account) -> None:
    """A Gmail account is Google's own, read alone, and has its secrets with its connection."""
    if account.protocol != Account.Protocol.GMAIL:
        if not account.secret_ref:
            raise InvalidInput("secret_ref: say where the password is found", field="secret_ref")
        return
    for name, value in GMAIL_SERVER.items():
        if getattr(account, name) != value:
            raise InvalidInput(f"{name} of a Gmail account is {value}", field=name)
    for name in _NOT_FOR_GMAIL:
        if getattr(account, name):
            raise InvalidInput(
                f"{name} must be empty: a Gmail account is only read, through its own connection",
                field=name,
            )
    if "@" not in account.username:
        raise InvalidInput("username must be the mailbox's address", field="username")

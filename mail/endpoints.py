"""From an account's row to where its servers are: secrets are resolved here, and kept no longer."""

from __future__ import annotations

from django.conf import settings

from guards import secrets
from mail.gateways.base import Endpoint
from mail.models import Account


def incoming(account: Account) -> Endpoint:
    """Where the account's mailbox is. SecretUnavailable where its reference does not resolve."""
    return Endpoint(
        host=account.host,
        port=account.port,
        username=account.username,
        password=_reveal(account.secret_ref),
        skip_verify=account.tls_skip_verify,
        allow_plaintext=settings.MAIL_ALLOW_PLAINTEXT_LOOPBACK,
    )


def outgoing(account: Account) -> Endpoint:
    """The account's way out; user name and secret are the mailbox's own where none are given."""
    return Endpoint(
        host=account.smtp_host,
        port=account.smtp_port,
        username=account.smtp_username or account.username,
        password=_reveal(account.smtp_secret_ref or account.secret_ref),
        skip_verify=account.tls_skip_verify,
        allow_plaintext=settings.MAIL_ALLOW_PLAINTEXT_LOOPBACK,
    )


def _reveal(reference: str) -> str:
    return secrets.resolve(reference).reveal() if reference else ""

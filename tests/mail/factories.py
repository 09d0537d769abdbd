"""Rows of mail for tests, and small messages."""

from __future__ import annotations

import uuid
from datetime import datetime
from email.message import EmailMessage
from email.policy import SMTP

import factory

from guards.models import Identity
from guards.services import contacts, identities, permissions
from guards.types import SYSTEM, Asker, Rwx
from mail.models import Account
from mail.services import accounts
from tests.keys import Key, sign_detached

OPERATOR = Asker("operator", "olga")


class IdentityFactory(factory.Factory):
    """An agent made by the service."""

    class Meta:
        model = Identity

    handle = factory.Sequence(lambda n: f"agent{n}")
    email = factory.LazyAttribute(lambda made: f"{made.handle}@agents.test")
    name = factory.LazyAttribute(lambda made: made.handle.title())

    @classmethod
    def _create(cls, model_class, *args, **values):
        return identities.create_identity(by=SYSTEM, **values)


class AccountFactory(factory.Factory):
    """A mailbox made by the service; the secret comes from the environment variable MAIL_SECRET."""

    class Meta:
        model = Account

    identity = factory.SubFactory(IdentityFactory)
    name = factory.LazyAttribute(lambda made: made.identity.handle)
    host = "127.0.0.1"
    port = 1143
    username = factory.LazyAttribute(lambda made: made.identity.email)
    secret_ref = "env:MAIL_SECRET"
    smtp_host = "127.0.0.1"
    smtp_port = 1587

    @classmethod
    def _create(cls, model_class, *args, identity, **values):
        return accounts.create_account(identity=identity, by=SYSTEM, **values)


def make_contact(identity: Identity, address: str, rwx: str = "rwx"):
    """A contact that may do that much with this identity."""
    contact = contacts.add_contact(address=address, by=OPERATOR)
    permissions.grant(identity=identity, contact=contact, rwx=Rwx.parse(rwx), by=OPERATOR)
    return contact


def make_mail(
    sender: str = "alice@example.org",
    to: str = "agent@agents.test",
    subject: str = "Hello",
    text: str = "A line.\n",
    message_id: str | None = None,
    **headers: str,
) -> bytes:
    """A plain message with CRLF, and headers as given (underscores become hyphens)."""
    made = EmailMessage(policy=SMTP)
    made["From"], made["To"], made["Subject"] = sender, to, subject
    made["Date"] = "Mon, 30 Nov 2026 09:00:00 +0000"
    made["Message-ID"] = f"<{message_id or uuid.uuid4()}>".replace("<<", "<").replace(">>", ">")
    for name, value in headers.items():
        made[name.replace("_", "-")] = value
    made.set_content(text)
    return made.as_bytes()


def make_signed(
    key: Key,
    text: str,
    *,
    sender: str = "alice@example.org",
    to: str = "agent@agents.test",
    subject: str = "Signed",
    at: datetime | None = None,
    break_body: bool = False,
) -> bytes:
    """A PGP/MIME message whose signed part names its recipient by a protected header."""
    signed = (
        f'Content-Type: text/plain; charset="utf-8"; protected-headers="v1"\r\nTo: {to}\r\n\r\n'
        + text.replace("\n", "\r\n")
    ).encode()
    signature = sign_detached(key, signed, at=at)
    if break_body:
        signed = signed.replace(b"a", b"b")
    head = (
        f"From: {sender}\r\nTo: {to}\r\nSubject: {subject}\r\n"
        f"Date: Mon, 30 Nov 2026 09:00:00 +0000\r\nMessage-ID: <{uuid.uuid4()}@x>\r\n"
        "MIME-Version: 1.0\r\nContent-Type: multipart/signed; micalg=pgp-sha256;\r\n"
        ' protocol="application/pgp-signature"; boundary="bb"\r\n\r\n'
    ).encode()
    return (
        head
        + b"--bb\r\n"
        + signed
        + b"\r\n--bb\r\nContent-Type: application/pgp-signature\r\n\r\n"
        + signature.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
        + b"\r\n--bb--\r\n"
    )

"""Signed heads of the log: an installation key that is never in the database signs them.

One signature per event would cap verification at a few thousand events per second; a head every
second or hundred events ties the whole chain below it.
"""

from __future__ import annotations

import base64
import logging
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from django.conf import settings
from django.db import IntegrityError, connection, transaction

from guards import secrets
from guards.exceptions import SecretUnavailable
from guards.services import statements, units
from guards.services.statements import Statement
from teams.models import Checkpoint
from teams.types import LogHead

logger = logging.getLogger(__name__)

#: A head is signed at least this often while something is unsigned.
EVERY_SECONDS = 1.0
EVERY_EVENTS = 100


@dataclass(slots=True)
class Pace:
    """When this process last signed or tried to, so that most commits cost no query."""

    seq: int = 0
    at: float = float("-inf")

    def is_due(self, *, head_seq: int, now: float) -> bool:
        """Whether a second has passed, or a hundred events have gathered. `now` is monotonic."""
        return now - self.at >= EVERY_SECONDS or abs(head_seq - self.seq) >= EVERY_EVENTS


_pace = Pace()

# Signing follows commits of the house: built by the ORM the statements take most of its time.
_UNSIGNED = Statement(
    "SELECT seq, hash FROM teams_logposition"
    " WHERE id = 1 AND seq > (SELECT COALESCE(MAX(seq), 0) FROM teams_checkpoint)"
)


def sign_head() -> Checkpoint | None:
    """Sign the present head, outside any transaction; None when it is signed already.

    SecretUnavailable when the installation key cannot be read.
    """
    (found,) = statements.execute([_UNSIGNED])
    if not found.rows:
        return None
    head = LogHead(*found.rows[0])
    key = installation_key()
    checkpoint = Checkpoint(
        seq=head.seq,
        hash=head.hash,
        key_id=key_id(key.public_key()),
        signature=base64.b64encode(key.sign(statement(head))).decode(),
    )
    try:
        _keep(checkpoint)
    except IntegrityError:
        # Another process signed the same head meanwhile.
        return Checkpoint.objects.get(seq=head.seq)
    return checkpoint


def _keep(checkpoint: Checkpoint) -> None:
    fields = [one for one in Checkpoint._meta.concrete_fields if not one.primary_key]
    names, places = ", ".join(str(one.column) for one in fields), ", ".join(["%s"] * len(fields))
    values = [one.get_db_prep_save(getattr(checkpoint, one.attname), connection) for one in fields]
    text = f"INSERT INTO teams_checkpoint ({names}) VALUES ({places})"  # noqa: S608 - columns only
    commits = units.is_outside(connection)
    with transaction.atomic(durable=True):
        insert = Statement(f"{text} RETURNING id", values)
        (kept,) = statements.execute_last([insert], commits=commits)
    checkpoint.pk = kept.rows[0][0]


def sign_if_due() -> bool:
    """The beat of a long-lived process: sign what has waited. Never raises; True when it signed.

    An installation key that cannot be read is logged; `doctor` and `verify_log` say it aloud.
    """
    _pace.at = time.monotonic()
    try:
        checkpoint = sign_head()
    except SecretUnavailable as error:
        logger.warning("the head of the event log stays unsigned: %s", error)
        return False
    return checkpoint is not None


def sign_after_append(*, head_seq: int) -> bool:
    """After a commit: sign when it is due by this process's pace. The beat takes the rest."""
    if not _pace.is_due(head_seq=head_seq, now=time.monotonic()):
        return False
    _pace.seq = head_seq  # tried, whoever signs it: the next try is a second or a hundred later
    return sign_if_due()


def statement(head: LogHead) -> bytes:
    """The bytes that are signed."""
    return f"countersign-log/1\n{head.seq}\n{head.hash}\n".encode()


def holds(checkpoint: Checkpoint, key: Ed25519PublicKey) -> bool:
    """Whether this key signed this checkpoint."""
    if checkpoint.key_id != key_id(key):
        return False
    try:
        signature = base64.b64decode(checkpoint.signature, validate=True)
        key.verify(signature, statement(LogHead(checkpoint.seq, checkpoint.hash)))
    except (InvalidSignature, ValueError):
        return False
    return True


def key_id(key: Ed25519PublicKey) -> str:
    """The first 16 hex digits of the public key's SHA-256."""
    raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return sha256(raw).hexdigest()[:16]


def installation_key() -> Ed25519PrivateKey:
    """The key behind `INSTALLATION_KEY_REF`; SecretUnavailable when it is missing or no Ed25519."""
    pem = secrets.resolve(settings.INSTALLATION_KEY_REF).reveal()
    try:
        key = serialization.load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError) as error:
        raise SecretUnavailable("the installation key is no readable PEM key") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise SecretUnavailable("the installation key is no Ed25519 key")
    return key


def ensure_key() -> Path | None:
    """Write a new installation key where the reference names a file that does not exist.

    Returns the path when it wrote one. For `prepare` and `up`; any other reference is the
    operator's own.
    """
    pem = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return secrets.create_file(settings.INSTALLATION_KEY_REF, pem.decode())

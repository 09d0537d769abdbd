"""Private bytes, encrypted at rest: sealed before a transaction, stored inside it."""

from __future__ import annotations

from pathlib import Path

from cryptography.fernet import Fernet
from django.conf import settings

from approvals.models import Artifact
from approvals.sealing import encrypt, require_key, unseal
from guards import secrets

__all__ = ["encrypt", "ensure_key", "require_key", "seal", "store", "unseal"]


def seal(content: bytes) -> Artifact:
    """Encrypt and store. SecretUnavailable without a key: nothing private is kept in the clear."""
    artifact = encrypt(content)
    artifact.save(force_insert=True)
    return artifact


def store(*sealed: Artifact) -> None:
    """Store what was encrypted outside, inside the transaction that refers to it."""
    for artifact in sealed:
        artifact.save(force_insert=True)


def ensure_key() -> Path | None:
    """Write a new artifact key where the reference names a file that does not exist.

    Returns the path when it wrote one. For `prepare` and `up`.
    """
    return secrets.create_file(settings.ARTIFACT_KEY_REF, Fernet.generate_key().decode() + "\n")

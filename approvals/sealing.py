"""Sealing: private bytes become ciphertext and back, by a key that is a secret reference.

Reads the key, so it happens outside any transaction; storing is the services' business.
"""

from __future__ import annotations

from hashlib import sha256

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

from approvals.exceptions import ArtifactUnreadable
from approvals.models import Artifact
from guards import secrets
from guards.exceptions import SecretUnavailable


def encrypt(content: bytes) -> Artifact:
    """An artifact that is not stored yet: reads the key, so it is made outside any transaction."""
    return Artifact(
        ciphertext=_keys().encrypt(content),
        sha256=sha256(content).hexdigest(),
        size=len(content),
    )


def unseal(artifact: Artifact) -> bytes:
    """The plaintext, checked against its digest.

    Outside any transaction. SecretUnavailable without a key, ArtifactUnreadable when no key fits or
    the bytes are others.
    """
    try:
        content = _keys().decrypt(bytes(artifact.ciphertext))
    except InvalidToken as error:
        raise ArtifactUnreadable(
            f"artifact {artifact.pk} does not open with the keys of ARTIFACT_KEY_REF"
        ) from error
    if sha256(content).hexdigest() != artifact.sha256:
        raise ArtifactUnreadable(f"artifact {artifact.pk} holds other bytes than were sealed")
    return content


def require_key() -> None:
    """SecretUnavailable unless the artifact key can be read: for checks and `doctor`."""
    _keys()


def key_lines() -> list[str]:
    """The keys as they lie there, newest first; SecretUnavailable where there is none."""
    lines = secrets.resolve(settings.ARTIFACT_KEY_REF).reveal().split()
    if not lines:
        raise SecretUnavailable("ARTIFACT_KEY_REF names an empty secret")
    return lines


def _keys() -> MultiFernet:
    lines = key_lines()
    try:
        return MultiFernet([Fernet(line) for line in lines])
    except ValueError as error:
        raise SecretUnavailable(
            "ARTIFACT_KEY_REF does not hold Fernet keys, one a line, newest first"
        ) from error

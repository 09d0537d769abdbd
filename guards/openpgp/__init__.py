"""OpenPGP: verify against pinned keys, sign with an identity's key, encrypt to pinned keys.

The one gateway to GnuPG. `memory` is its sibling without processes, for tests; both pass the same
contract tests. Nothing here knows contacts, mail or verdicts: see `guards.trust`.
"""

from __future__ import annotations

from guards.openpgp.base import (
    Encrypter,
    EncryptionRefusal,
    KeyFacts,
    Signature,
    SignatureOutcome,
    SignatureReport,
    Verifier,
)
from guards.openpgp.encryption import GnuPGEncrypter
from guards.openpgp.gnupg import GnuPGVerifier
from guards.openpgp.keys import read_key
from guards.openpgp.signing import sign

__all__ = [
    "Encrypter",
    "EncryptionRefusal",
    "KeyFacts",
    "Signature",
    "SignatureOutcome",
    "SignatureReport",
    "Verifier",
    "encrypter",
    "read_key",
    "sign",
    "verifier",
]


def verifier() -> Verifier:
    """The real verifier."""
    return GnuPGVerifier()


def encrypter() -> Encrypter:
    """The real encrypter."""
    return GnuPGEncrypter()

"""OpenPGP: verify a signature against pinned keys, sign with an identity's key, read a key.

The one gateway to GnuPG. `memory` is its sibling without processes, for tests; both pass the same
contract tests. Nothing here knows contacts, mail or verdicts: see `guards.trust`.
"""

from __future__ import annotations

from guards.openpgp.base import (
    KeyFacts,
    Signature,
    SignatureOutcome,
    SignatureReport,
    Verifier,
)
from guards.openpgp.gnupg import GnuPGVerifier
from guards.openpgp.keys import read_key
from guards.openpgp.signing import sign

__all__ = [
    "KeyFacts",
    "Signature",
    "SignatureOutcome",
    "SignatureReport",
    "Verifier",
    "read_key",
    "sign",
    "verifier",
]


def verifier() -> Verifier:
    """The real verifier."""
    return GnuPGVerifier()

"""What OpenPGP means to the rest of the house: reports, key facts, and the verifier's contract."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from guards.types import Pin

#: Hash ids (RFC 9580 §9.5) that may stand under a signature. SHA-1, MD5 and RIPEMD160 may not.
ALLOWED_HASHES = {8: "SHA256", 9: "SHA384", 10: "SHA512", 11: "SHA224"}
HASH_NAMES = {1: "MD5", 2: "SHA1", 3: "RIPEMD160", **ALLOWED_HASHES, 12: "SHA3-256", 14: "SHA3-512"}

#: A document or the text of a document (RFC 9580 §5.2.1). No certification, no timestamp.
ALLOWED_CLASSES = frozenset({0x00, 0x01})

#: How far a sender's clock may run ahead of ours.
CLOCK_TOLERANCE = timedelta(minutes=5)

#: Seconds that one GnuPG process may take.
TIMEOUT = 10.0

MAX_SIGNATURE_BYTES = 64 * 1024
MAX_KEY_BYTES = 1024 * 1024


class SignatureOutcome(StrEnum):
    """What became of one verification: the closed list."""

    GOOD = "good"
    UNPINNED_KEY = "unpinned-key"
    BAD_SIGNATURE = "bad-signature"
    EXPIRED_KEY = "expired-key"
    REVOKED_KEY = "revoked-key"
    EXPIRED_SIGNATURE = "expired-signature"
    WEAK_HASH = "weak-hash"
    FUTURE_SIGNATURE = "future-signature"
    SEVERAL_SIGNATURES = "several-signatures"
    NO_SIGNATURE_DATA = "no-signature-data"
    VERIFIER_UNAVAILABLE = "verifier-unavailable"


class EncryptionRefusal(StrEnum):
    """Why nothing was encrypted: the closed list."""

    NO_RECIPIENT = "no-recipient"
    TOO_MANY_RECIPIENTS = "too-many-recipients"
    UNREADABLE_KEY = "unreadable-key"
    WRONG_KEY = "wrong-key"
    REVOKED_KEY = "revoked-key"
    EXPIRED_KEY = "expired-key"
    NO_ENCRYPTION_KEY = "no-encryption-key"


@dataclass(frozen=True, slots=True)
class SignatureReport:
    """The answer of a verifier.

    `signer` is 40 hex digits: the primary fingerprint of the pinned key where one was asked (the
    signature only claims to be of it unless the outcome is GOOD), else the issuer fingerprint that
    the signature claims; None where it claims a key id only. `status` are GnuPG's status words
    that counted, in order. `detail` is for people and logs.
    """

    outcome: SignatureOutcome
    signer: str | None = None
    signed_at: datetime | None = None
    hash: str | None = None
    status: tuple[str, ...] = ()
    detail: str = ""


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """A public key: its primary fingerprint (40 upper-case hex), first UID, expiry, binary form."""

    fingerprint: str
    uid: str
    expires_at: datetime | None
    binary: bytes = field(repr=False)
    created_at: datetime | None = None
    revoked: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """A detached signature, armoured, and the `micalg` that RFC 3156 wants beside it."""

    armored: bytes
    micalg: str


def is_in_the_future(moment: datetime, now: datetime) -> bool:
    """Whether a signature of `moment` is dated later than a clock that runs ahead explains."""
    return moment - now > CLOCK_TOLERANCE


class Verifier(Protocol):
    """Judges one detached signature against the keys that may count. Never raises."""

    def verify(
        self, *, signed: bytes, signature: bytes, pins: Sequence[Pin], now: datetime | None
    ) -> SignatureReport:
        """Verify `signature` (armoured or binary) over exactly the bytes `signed`.

        The key is chosen among `pins` by the issuer that the signature names. `now` is the moment
        at which the key and the signature must be valid; None is the real clock.
        """
        ...


class Encrypter(Protocol):
    """Makes bytes unreadable for everybody but the holders of pinned keys."""

    def encrypt(
        self, *, payload: bytes, recipients: Sequence[Pin], now: datetime | None = None
    ) -> bytes:
        """`payload` as one armoured OpenPGP message to exactly these keys, each once.

        A key counts by its pinned primary fingerprint alone. EncryptionRefused, before anything is
        written, unless each of them may receive at `now` (None is the real clock);
        OpenPGPUnavailable when GnuPG cannot be asked or did not do exactly this.
        """
        ...

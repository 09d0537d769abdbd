"""OpenPGP without GnuPG and without cryptography: for tests, and for trying things out.

It keeps the same contract as the real verifier and passes the same tests. It protects nothing: a
"signature" is a line of JSON with a digest that anybody can compute.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime

from guards.exceptions import EncryptionRefused, OpenPGPUnavailable
from guards.openpgp.base import (
    ALLOWED_HASHES,
    EncryptionRefusal,
    KeyFacts,
    SignatureOutcome,
    SignatureReport,
    is_in_the_future,
)
from guards.openpgp.encryption import distinct, refuse_unfit
from guards.types import Pin

_STATUS = {
    SignatureOutcome.GOOD: ("GOODSIG", "VALIDSIG"),
    SignatureOutcome.WEAK_HASH: ("GOODSIG", "VALIDSIG"),
    SignatureOutcome.FUTURE_SIGNATURE: ("GOODSIG", "VALIDSIG"),
    SignatureOutcome.BAD_SIGNATURE: ("BADSIG",),
    SignatureOutcome.EXPIRED_KEY: ("EXPKEYSIG", "VALIDSIG"),
    SignatureOutcome.REVOKED_KEY: ("REVKEYSIG", "VALIDSIG"),
    SignatureOutcome.EXPIRED_SIGNATURE: ("EXPSIG", "VALIDSIG"),
}

_Claims = dict[str, str]


def make_key(
    uid: str,
    *,
    expires_at: datetime | None = None,
    revoked: bool = False,
    encrypts: bool = False,
) -> KeyFacts:
    """A made-up key; its `binary` is what a pin of it holds. `encrypts`: it may receive."""
    fingerprint = secrets.token_hex(20).upper()
    claims = {
        "fingerprint": fingerprint,
        "expires_at": expires_at.isoformat() if expires_at else "",
        "revoked": "yes" if revoked else "",
        "encrypts": "yes" if encrypts else "",
    }
    return KeyFacts(fingerprint, uid, expires_at, json.dumps(claims).encode(), revoked=revoked)


def sign(
    key: KeyFacts,
    payload: bytes,
    *,
    at: datetime,
    hash: str = "SHA256",
    expires_at: datetime | None = None,
) -> bytes:
    """A made-up detached signature: one line."""
    claims = {
        "issuer": key.fingerprint,
        "at": at.isoformat(),
        "hash": hash,
        "expires_at": expires_at.isoformat() if expires_at else "",
        "digest": _digest(key.fingerprint, payload),
    }
    return json.dumps(claims).encode() + b"\n"


def _digest(fingerprint: str, payload: bytes) -> str:
    return hashlib.sha256(fingerprint.encode() + b"\0" + payload).hexdigest()


class MemoryVerifier:
    """Judges made-up signatures by the contract of `Verifier`. `available=False`: GnuPG is gone."""

    def __init__(self, *, available: bool = True) -> None:
        self.available = available

    def verify(
        self, *, signed: bytes, signature: bytes, pins: Sequence[Pin], now: datetime | None
    ) -> SignatureReport:
        """See `Verifier.verify`."""
        moment = now or datetime.now(UTC)
        claims = _read(signature)
        if not claims:
            return SignatureReport(SignatureOutcome.NO_SIGNATURE_DATA)
        if len(claims) > 1:
            return SignatureReport(SignatureOutcome.SEVERAL_SIGNATURES)
        pin = next((pin for pin in pins if pin.fingerprint == claims[0]["issuer"]), None)
        outcome = (
            _judge_unpinned(claims[0], moment)
            if pin is None
            else self._judge(claims[0], json.loads(pin.public_key), signed, moment)
        )
        return SignatureReport(
            outcome=outcome,
            signer=claims[0]["issuer"],
            signed_at=datetime.fromisoformat(claims[0]["at"]),
            hash=claims[0]["hash"],
            status=() if pin is None else _STATUS.get(outcome, ()),
        )

    def _judge(
        self, claims: _Claims, key: _Claims, signed: bytes, now: datetime
    ) -> SignatureOutcome:
        if not self.available:
            return SignatureOutcome.VERIFIER_UNAVAILABLE
        if claims["digest"] != _digest(claims["issuer"], signed):
            return SignatureOutcome.BAD_SIGNATURE
        if _is_past(key["expires_at"], now):
            return SignatureOutcome.EXPIRED_KEY
        if key["revoked"]:
            return SignatureOutcome.REVOKED_KEY
        if _is_past(claims["expires_at"], now):
            return SignatureOutcome.EXPIRED_SIGNATURE
        refused = _judge_unpinned(claims, now)
        return SignatureOutcome.GOOD if refused is SignatureOutcome.UNPINNED_KEY else refused


def _judge_unpinned(claims: _Claims, now: datetime) -> SignatureOutcome:
    if claims["hash"] not in ALLOWED_HASHES.values():
        return SignatureOutcome.WEAK_HASH
    if is_in_the_future(datetime.fromisoformat(claims["at"]), now):
        return SignatureOutcome.FUTURE_SIGNATURE
    return SignatureOutcome.UNPINNED_KEY


def _is_past(text: str, now: datetime) -> bool:
    return bool(text) and datetime.fromisoformat(text) <= now


def _read(signature: bytes) -> list[_Claims]:
    try:
        return [
            json.loads(line) for line in signature.splitlines() if line.startswith(b'{"issuer"')
        ]
    except ValueError:
        return []


class MemoryEncrypter:
    """Keeps the contract of `Encrypter` and hides nothing: the "message" is a line of JSON."""

    def __init__(self, *, available: bool = True) -> None:
        self.available = available

    def encrypt(
        self, *, payload: bytes, recipients: Sequence[Pin], now: datetime | None = None
    ) -> bytes:
        """See `Encrypter.encrypt`."""
        chosen = distinct(recipients)
        for pin in chosen:
            _refuse_unfit_pin(pin, now or datetime.now(UTC))
        if not self.available:
            raise OpenPGPUnavailable("gpg is not installed: install GnuPG")
        message = {"to": [pin.fingerprint for pin in chosen], "payload": payload.hex()}
        return _BEGIN + json.dumps(message).encode() + _END


_BEGIN = b"-----BEGIN PGP MESSAGE-----\n\n"
_END = b"\n-----END PGP MESSAGE-----\n"


def decrypt(key: KeyFacts, message: bytes) -> bytes | None:
    """What a made-up message says to the holder of that key; None where it is for others."""
    content = json.loads(message.removeprefix(_BEGIN).removesuffix(_END))
    return bytes.fromhex(content["payload"]) if key.fingerprint in content["to"] else None


def _refuse_unfit_pin(pin: Pin, now: datetime) -> None:
    try:
        claims: _Claims = json.loads(pin.public_key)
    except ValueError as error:
        raise EncryptionRefused(EncryptionRefusal.UNREADABLE_KEY) from error
    if claims["fingerprint"] != pin.fingerprint:
        raise EncryptionRefused(EncryptionRefusal.WRONG_KEY)
    ends = datetime.fromisoformat(claims["expires_at"]) if claims["expires_at"] else None
    refuse_unfit(pin.fingerprint, revoked=bool(claims["revoked"]), expires_at=ends, now=now)
    if not claims["encrypts"]:
        raise EncryptionRefused(EncryptionRefusal.NO_ENCRYPTION_KEY)

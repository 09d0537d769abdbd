"""Signed documents: nothing runs that the owner did not sign, and the owner is not in the database.

The owner's key is named by settings (OWNER_FINGERPRINT, or OWNER_HANDLE through ethos files) and
read from OWNER_KEY_FILE at every call, so that replacing, removing or outliving it takes effect at
once in a running worker (DES-034, DES-035).
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import rfc8785
import yaml
from django.conf import settings

from guards.exceptions import (
    CountersignError,
    DocumentCheckFailed,
    DocumentNotSigned,
    InvalidInput,
    NoOwnerKey,
    OpenPGPUnavailable,
    OwnerKeyInvalid,
)
from guards.openpgp import KeyFacts, SignatureOutcome, read_key, verifier
from guards.types import Pin

logger = logging.getLogger(__name__)

_FINGERPRINT = re.compile(r"[0-9A-Fa-f]{40}")
_HANDLE = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,62}[a-z0-9])?", re.IGNORECASE)
_MAX_FILE_BYTES = 1024 * 1024

#: How a signature's fault is named; what is not listed is `invalid`.
_REASONS = {
    SignatureOutcome.UNPINNED_KEY: "wrong-key",
    SignatureOutcome.EXPIRED_KEY: "expired-key",
}


@dataclass(frozen=True, slots=True)
class OwnerKey:
    """The one key whose signature lets a document count. `source` names the setting it is from."""

    fingerprint: str
    public_key: bytes = field(repr=False)
    expires_at: datetime
    uid: str
    source: str


class OwnerKeyExpired(OwnerKeyInvalid):
    """The owner's key has expired, so no command runs until it is renewed."""


def canonical(document: Mapping[str, Any]) -> bytes:
    """The bytes that are signed: RFC 8785 JSON of all fields but `signature`.

    InvalidInput for what JSON cannot hold exactly: dates, NaN, whole numbers past 2**53 in whatever
    form (PostgreSQL gives `1e18` back as one), keys that are not text.
    """
    if not isinstance(document, Mapping):  # a row that somebody wrote past us
        raise InvalidInput("this document has no canonical form: it is no mapping")
    fields = {name: value for name, value in document.items() if name != "signature"}
    try:
        _refuse_inexact(fields)
        return rfc8785.dumps(fields)
    except (rfc8785.CanonicalizationError, RecursionError) as error:
        raise InvalidInput(f"this document has no canonical form: {error}") from error


def _refuse_inexact(value: Any) -> None:
    if isinstance(value, Mapping):
        for inner in value.values():
            _refuse_inexact(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _refuse_inexact(inner)
    elif isinstance(value, float) and value.is_integer() and abs(value) > 2**53:
        raise rfc8785.FloatDomainError(value)


def digest(document: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical bytes, in hex."""
    return hashlib.sha256(canonical(document)).hexdigest()


def verify_document(
    document: Mapping[str, Any], signature: str, *, now: datetime | None = None
) -> None:
    """Return only if `signature` is the owner's over this document, at `now` (default: real time).

    NoOwnerKey or OwnerKeyInvalid: nothing can run. DocumentNotSigned with its reason: this document
    must not. DocumentCheckFailed: it could not be found out.
    """
    try:
        owner = owner_key(now=now)
    except OwnerKeyExpired as error:
        raise DocumentNotSigned("expired-key", error.detail) from error
    if not signature.strip():
        raise DocumentNotSigned("missing", "the document has no signature")
    pin = Pin(frozenset(), owner.fingerprint, owner.public_key, "owner")
    report = verifier().verify(
        signed=canonical(document), signature=signature.encode(), pins=(pin,), now=now
    )
    if report.outcome is SignatureOutcome.VERIFIER_UNAVAILABLE:
        raise DocumentCheckFailed(f"the signature could not be checked: {report.detail}")
    if report.outcome is not SignatureOutcome.GOOD:
        reason = _REASONS.get(report.outcome, "invalid")
        detail = report.detail
        if report.outcome is SignatureOutcome.UNPINNED_KEY:
            detail = f"the owner's key {owner.fingerprint} has not made it"
        raise DocumentNotSigned(reason, f"the signature is {reason}: {detail}")


def owner_key(*, now: datetime | None = None) -> OwnerKey:
    """The owner's key as settings and files name it at this moment.

    NoOwnerKey when none is configured (logged as information), OwnerKeyInvalid for both settings,
    one that does not resolve, another key in the file, a key without an expiry, revoked or expired
    (logged as an error). Never a fall-back.
    """
    try:
        return _read_owner_key(now or datetime.now(UTC))
    except NoOwnerKey:
        logger.info("no owner key is configured: no command runs")
        raise
    except OwnerKeyInvalid as error:
        logger.error("the owner key cannot be used, so no command runs: %s", error.detail)
        raise


def _read_owner_key(now: datetime) -> OwnerKey:
    fingerprint, source = _named_owner()
    facts = _key_in_file(settings.OWNER_KEY_FILE)
    if facts.fingerprint != fingerprint:
        raise OwnerKeyInvalid(
            f"OWNER_KEY_FILE holds {facts.fingerprint}, but {source} names {fingerprint}"
        )
    if facts.revoked:
        raise OwnerKeyInvalid(f"the owner's key {fingerprint} is revoked")
    if facts.expires_at is None:
        raise OwnerKeyInvalid(f"the owner's key {fingerprint} has no expiry date")
    if facts.expires_at <= now:
        raise OwnerKeyExpired(f"the owner's key {fingerprint} expired on {facts.expires_at:%F}")
    return OwnerKey(fingerprint, facts.binary, facts.expires_at, facts.uid, source)


def _named_owner() -> tuple[str, str]:
    """(fingerprint, setting) of the owner."""
    fingerprint, handle = settings.OWNER_FINGERPRINT, settings.OWNER_HANDLE
    if fingerprint and handle:
        raise OwnerKeyInvalid("OWNER_FINGERPRINT and OWNER_HANDLE are both set: keep one")
    if fingerprint:
        return _full_fingerprint(fingerprint, "OWNER_FINGERPRINT"), "OWNER_FINGERPRINT"
    if handle:
        return _fingerprint_of_handle(handle), "OWNER_HANDLE"
    raise NoOwnerKey()


def _full_fingerprint(value: object, where: str) -> str:
    if not isinstance(value, str) or _FINGERPRINT.fullmatch(value) is None:
        raise OwnerKeyInvalid(f"{where} is not a full fingerprint of 40 hex digits")
    return value.upper()


def _fingerprint_of_handle(handle: str) -> str:
    """What ethos knows: identities/HANDLE.yaml must exist, its key is in .ext/beadle.yaml."""
    if _HANDLE.fullmatch(handle) is None:
        raise OwnerKeyInvalid(f"OWNER_HANDLE {handle!r} is not a handle")
    folder = Path(settings.ETHOS_DIR) / "identities"
    identity = _ethos_file(folder / f"{handle}.yaml")
    if identity.get("handle", handle) != handle:
        raise OwnerKeyInvalid(f"{handle}.yaml speaks of another handle")
    extension = folder / f"{handle}.ext" / "beadle.yaml"
    return _full_fingerprint(_ethos_file(extension).get("gpg_key_id"), f"gpg_key_id in {extension}")


def _ethos_file(path: Path) -> dict[str, Any]:
    content = _bounded_content(path, f"OWNER_HANDLE does not resolve: {path}")
    try:
        loaded = _load_yaml(content)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise OwnerKeyInvalid(f"OWNER_HANDLE does not resolve: {path} is not YAML") from error
    if not isinstance(loaded, dict):
        raise OwnerKeyInvalid(f"OWNER_HANDLE does not resolve: {path} holds no fields")
    return loaded


@lru_cache(maxsize=8)
def _load_yaml(content: bytes) -> object:
    return yaml.safe_load(content)


def _key_in_file(name: str) -> KeyFacts:
    if not name:
        raise OwnerKeyInvalid("an owner is named, but OWNER_KEY_FILE is not set")
    content = _bounded_content(Path(name), "OWNER_KEY_FILE")
    try:
        return read_key(content)
    except OpenPGPUnavailable as error:
        raise DocumentCheckFailed(f"the owner's key could not be read: {error.detail}") from error
    except CountersignError as error:
        raise OwnerKeyInvalid(f"OWNER_KEY_FILE {name}: {error.detail}") from error


def _bounded_content(path: Path, what: str) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise OwnerKeyInvalid(f"{what} cannot be read: {error.strerror} ({path})") from error
    if len(content) > _MAX_FILE_BYTES:
        raise OwnerKeyInvalid(f"{what} is larger than {_MAX_FILE_BYTES} bytes")
    return content

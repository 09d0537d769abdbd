"""Who is a message really from, and does it speak to us, now, for the first time.

Pure but for one call of the verifier: facts in, verdict with evidence out (DES-001, DES-003,
DES-004). The table is in `classify`, in its order. Nothing here reads mail or the database.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from guards.openpgp.base import SignatureOutcome, SignatureReport, Verifier
from guards.types import (
    Pin,
    ProviderHeaders,
    SignedStructure,
    TransportFacts,
    TrustEvidence,
    TrustLevel,
    TrustReason,
    TrustVerdict,
)

#: Proton's internal headers and the only values that count, by lower-case name (DES-001).
PROTON_HEADERS = {
    "x-pm-content-encryption": "end-to-end",
    "x-pm-origin": "internal",
}

#: Outcomes that make a message untrusted, whoever it says it is from.
_UNTRUSTED = {
    SignatureOutcome.BAD_SIGNATURE: TrustReason.BAD_SIGNATURE,
    SignatureOutcome.EXPIRED_KEY: TrustReason.EXPIRED_KEY,
    SignatureOutcome.REVOKED_KEY: TrustReason.REVOKED_KEY,
    SignatureOutcome.EXPIRED_SIGNATURE: TrustReason.EXPIRED_SIGNATURE,
    SignatureOutcome.WEAK_HASH: TrustReason.WEAK_HASH,
    SignatureOutcome.FUTURE_SIGNATURE: TrustReason.FUTURE_SIGNATURE,
    SignatureOutcome.SEVERAL_SIGNATURES: TrustReason.SEVERAL_SIGNATURES,
    SignatureOutcome.NO_SIGNATURE_DATA: TrustReason.NO_SIGNATURE_DATA,
}

#: What a message is when no signature was judged.
_UNJUDGED = {
    SignedStructure.NONE: TrustReason.UNSIGNED,
    SignedStructure.NOT_TOP_LEVEL: TrustReason.SIGNATURE_NOT_TOP_LEVEL,
    SignedStructure.MALFORMED: TrustReason.MALFORMED_SIGNED,
    SignedStructure.SIGNED: TrustReason.MALFORMED_SIGNED,
    SignedStructure.ENCRYPTED: TrustReason.ENCRYPTED,
}


def classify(
    facts: TransportFacts, pins: Sequence[Pin], now: datetime, verifier: Verifier
) -> TrustVerdict:
    """The trust level of a message, with its reason and evidence.

    The first row that applies decides: no single From; what a signature spoils; the key pinned to
    this sender; Proton's own word on a declared loopback bridge; the rest. An encrypted message is
    judged by what is outside of it.
    """
    provider, notes = _judge_provider(facts)
    evidence = TrustEvidence(provider_headers=provider, notes=(*facts.notes, *notes))
    if facts.sender is None:
        return TrustVerdict(TrustLevel.UNVERIFIED, TrustReason.NO_IDENTITY, evidence)
    report = _verify(facts, pins, now, verifier)
    if report is not None:
        evidence = _with_report(evidence, report)
        spoiled = _untrusted_reason(facts.sender, report, pins)
        if spoiled is not None:
            return TrustVerdict(TrustLevel.UNTRUSTED, spoiled, evidence)
        if not _is_consistent(facts):
            evidence = _noted(evidence, "signed-from-differs")
            return TrustVerdict(TrustLevel.UNVERIFIED, TrustReason.MALFORMED_SIGNED, evidence)
        if report.outcome is SignatureOutcome.GOOD:
            return TrustVerdict(TrustLevel.VERIFIED, TrustReason.PINNED_KEY, evidence)
    if provider is ProviderHeaders.HONOURED:
        return TrustVerdict(TrustLevel.TRUSTED, TrustReason.PROTON_INTERNAL, evidence)
    return TrustVerdict(TrustLevel.UNVERIFIED, _remaining_reason(facts, report), evidence)


def _judge_provider(facts: TransportFacts) -> tuple[ProviderHeaders, tuple[str, ...]]:
    """What the provider's internal headers are worth: anybody can write them elsewhere."""
    found: dict[str, list[str]] = {}
    for name, values in facts.proton_headers.items():
        found.setdefault(name.lower(), []).extend(value.strip() for value in values)
    if not any(found.values()):
        return ProviderHeaders.ABSENT, ()
    if not facts.loopback_bridge:
        return ProviderHeaders.IGNORED, ("provider-headers-not-from-bridge",)
    if all(found.get(name) == [value] for name, value in PROTON_HEADERS.items()):
        return ProviderHeaders.HONOURED, ()
    return ProviderHeaders.IGNORED, ("provider-headers-not-exact",)


def _verify(
    facts: TransportFacts, pins: Sequence[Pin], now: datetime, verifier: Verifier
) -> SignatureReport | None:
    """The one call of the verifier; None where there is no whole top-level signature to judge."""
    if facts.structure is not SignedStructure.SIGNED:
        return None
    if facts.signed is None or facts.signature is None:
        return None
    return verifier.verify(signed=facts.signed, signature=facts.signature, pins=pins, now=now)


def _untrusted_reason(
    sender: str, report: SignatureReport, pins: Sequence[Pin]
) -> TrustReason | None:
    if report.outcome is SignatureOutcome.GOOD:
        mine = any(
            pin.fingerprint == report.signer and sender.lower() in pin.addresses for pin in pins
        )
        return None if mine else TrustReason.KEY_OF_SOMEONE_ELSE
    return _UNTRUSTED.get(report.outcome)


def _is_consistent(facts: TransportFacts) -> bool:
    """Whether a From inside the signed part, where there is one, is the one outside."""
    if facts.signed_from is None or facts.sender is None:
        return True
    return facts.signed_from.lower() == facts.sender.lower()


def _remaining_reason(facts: TransportFacts, report: SignatureReport | None) -> TrustReason:
    if report is None:
        return _UNJUDGED[facts.structure]
    if report.outcome is SignatureOutcome.VERIFIER_UNAVAILABLE:
        return TrustReason.VERIFIER_UNAVAILABLE
    return TrustReason.UNPINNED_KEY


def _with_report(evidence: TrustEvidence, report: SignatureReport) -> TrustEvidence:
    filled = replace(
        evidence,
        signer=report.signer,
        signed_at=report.signed_at,
        hash=report.hash,
        status=report.status,
    )
    return _noted(filled, report.detail) if report.detail else filled


def _noted(evidence: TrustEvidence, note: str) -> TrustEvidence:
    return replace(evidence, notes=(*evidence.notes, note))


def is_bound(
    *, signed_text: str | None, signed_to: tuple[str, ...], email: str, handle: str | None
) -> bool:
    """Whether signed content names this identity, so that it cannot be forwarded to an agent.

    By a protected `To` inside the signed part, or by its address or `@handle` in the first line of
    the signed text that is not blank. A quoted line (`>`) names nobody.
    """
    address = email.lower()
    if address in (entry.lower() for entry in signed_to):
        return True
    lines = (line.strip().lower() for line in (signed_text or "").splitlines())
    first = next((line for line in lines if line), "")
    if first.startswith(">"):
        return False
    names = [re.escape(address)] + ([re.escape(f"@{handle.lower()}")] if handle else [])
    # Bounded by hand: both ends must not continue an address, a domain or a handle.
    return any(
        re.search(rf"(?<![\w.+@/-]){name}(?![\w@-]|\.\w)", first) is not None for name in names
    )


def is_too_old(
    *,
    when: datetime | None,
    now: datetime,
    max_age: timedelta,
    not_before: datetime | None = None,
) -> bool:
    """Whether a signature (or the arrival of a trusted message) is too old to start work.

    `not_before` is what a restore stamped: nothing from before it counts. No date is too old.
    """
    if when is None or now - when > max_age:
        return True
    return not_before is not None and when < not_before


def replay_key(
    *, facts: TransportFacts, verdict: TrustVerdict, message_id: str | None, text: str | None
) -> str:
    """The key under which this content may start one pipeline, ever; 64 hex digits.

    Verified: primary fingerprint, signature time, and the signed bytes without the white space at
    line ends, which a text signature does not cover. Trusted: Message-ID and decoded text. Empty
    for what may not execute at all.
    """
    evidence = verdict.evidence
    if verdict.level is TrustLevel.VERIFIED and evidence.signed_at is not None:
        stamp = str(int(evidence.signed_at.timestamp()))
        lines = [line.rstrip() for line in (facts.signed or b"").rstrip().split(b"\n")]
        return _hashed(b"verified", (evidence.signer or "").encode(), stamp.encode(), *lines)
    if verdict.level is TrustLevel.TRUSTED:
        return _hashed(b"trusted", (message_id or "").encode(), (text or "").encode())
    return ""


def _hashed(*parts: bytes) -> str:
    """SHA-256 over the parts, each with its length, so that none runs into the next."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()

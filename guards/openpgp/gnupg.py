"""The real verifier: GnuPG, seeing the one key that may count, and judged by its status lines.

`gpgv` is called directly, not through python-gnupg: it starts no agent, needs no home and takes a
third of the time, and python-gnupg has no time limit and lets a second signature overwrite the
fields of the first. `gpgv` cannot pretend that it is another day, so `explain --now` uses `gpg`
with the same keyring and the same mapping.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from guards.exceptions import OpenPGPUnavailable
from guards.openpgp.base import (
    ALLOWED_HASHES,
    HASH_NAMES,
    MAX_SIGNATURE_BYTES,
    TIMEOUT,
    SignatureOutcome,
    SignatureReport,
    is_in_the_future,
)
from guards.openpgp.invocation import NOWHERE, Invocation, invoke
from guards.openpgp.packets import (
    MalformedPackets,
    SignatureFacts,
    SurplusPackets,
    pinned_fingerprints,
    read_signatures,
    without_trust,
)
from guards.openpgp.standby import run_gpgv
from guards.openpgp.status import judge_status
from guards.types import Pin

#: A given `now` this close to the real clock is the real clock.
_SAME_MOMENT = timedelta(seconds=5)

#: OpenPGP counts seconds in 32 bits (0 and the last one mean "none"): before and after them nothing
#: begins or expires any more.
_FIRST_SECOND = 1
_LAST_SECOND = 2**32 - 2

_FINGERPRINT = re.compile(r"[0-9A-F]{40}")

#: How many pinned keys may answer to one key id before we stop trying.
_MAX_CANDIDATES = 4

_GPG = (
    "--batch", "--no-tty", "--no-options", "--homedir", NOWHERE, "--no-default-keyring",
    "--lock-never", "--no-autostart", "--disable-dirmngr", "--no-auto-key-retrieve",
    "--no-auto-check-trustdb", "--trust-model", "always", "--no-sig-cache",
    "--status-fd", "{status:fd}", "--keyring", "{keyring}",
)  # fmt: skip


class GnuPGVerifier:
    """Verifies detached signatures with the installed GnuPG. `timeout` is in seconds."""

    def __init__(self, *, timeout: float = TIMEOUT) -> None:
        self._timeout = timeout

    def verify(
        self, *, signed: bytes, signature: bytes, pins: Sequence[Pin], now: datetime | None
    ) -> SignatureReport:
        """See `Verifier.verify`."""
        facts = _the_one_signature(signature)
        if isinstance(facts, SignatureReport):
            return facts
        moment = now or datetime.now(UTC)
        candidates = choose_pins(pins, facts.issuer)
        if not candidates:
            return _judge_unpinned(facts, moment)
        reports = []
        for pin in candidates[:_MAX_CANDIDATES]:
            report = self._verify_with(pin, facts, signed, moment)
            if report.outcome is SignatureOutcome.GOOD:
                return report
            reports.append(report)
        return reports[0]

    def _verify_with(
        self, pin: Pin, facts: SignatureFacts, signed: bytes, now: datetime
    ) -> SignatureReport:
        try:
            done = self._run(without_trust(pin.public_key), facts.packet, signed, now)
        except OpenPGPUnavailable as error:
            return _unavailable(facts, pin, error.detail)
        except OSError as error:  # no descriptors or no memory left
            return _unavailable(facts, pin, f"the system refused: {error.strerror}")
        if done.exit_code < 0 or (done.exit_code and not done.status):
            return _unavailable(facts, pin, f"GnuPG failed with exit code {done.exit_code}")
        report = judge_status(
            done.status, exit_code=done.exit_code, fingerprint=pin.fingerprint, now=now
        )
        return report if report.signer else _with_claims(report, facts, pin)

    def _run(self, keyring: bytes, signature: bytes, signed: bytes, now: datetime) -> Invocation:
        if abs(now - datetime.now(UTC)) <= _SAME_MOMENT:
            return run_gpgv(
                keyring=keyring, signature=signature, signed=signed, timeout=self._timeout
            )
        seconds = min(max(int(now.timestamp()), _FIRST_SECOND), _LAST_SECOND)
        faked = ("--faked-system-time", f"{seconds}!")
        return invoke(
            "gpg",
            (*_GPG, *faked, "--verify", "{signature}", "{signed}"),
            {"keyring": keyring, "signature": signature, "signed": signed},
            timeout=self._timeout,
        )


def choose_pins(pins: Sequence[Pin], issuer: str | None) -> list[Pin]:
    """The pins whose key, or a subkey of it, may have made a signature of `issuer`.

    Each key counts once; one whose primary is the issuer comes first.
    """
    if not issuer:
        return []
    found: dict[str, tuple[bool, Pin]] = {}
    for pin in pins:
        for index, fingerprint in enumerate(pinned_fingerprints(pin.public_key)):
            if fingerprint == issuer or (len(issuer) == 16 and fingerprint.endswith(issuer)):
                found.setdefault(pin.fingerprint, (index != 0, pin))
                break
    return [pin for _, pin in sorted(found.values(), key=lambda entry: entry[0])]


def _the_one_signature(signature: bytes) -> SignatureFacts | SignatureReport:
    """The only signature there is, or the report that there is none, or more than one."""
    if len(signature) > MAX_SIGNATURE_BYTES:
        return SignatureReport(
            SignatureOutcome.BAD_SIGNATURE,
            detail=f"a signature of {len(signature)} bytes is not read",
        )
    try:
        found = read_signatures(signature)
    except SurplusPackets as error:
        return SignatureReport(SignatureOutcome.BAD_SIGNATURE, detail=str(error))
    except MalformedPackets as error:
        return SignatureReport(SignatureOutcome.NO_SIGNATURE_DATA, detail=str(error))
    if not found:
        return SignatureReport(SignatureOutcome.NO_SIGNATURE_DATA, detail="there is no signature")
    if len(found) > 1:
        return SignatureReport(
            SignatureOutcome.SEVERAL_SIGNATURES, detail=f"there are {len(found)} signatures"
        )
    return found[0]


def _judge_unpinned(facts: SignatureFacts, now: datetime) -> SignatureReport:
    """What can be said of a signature that no pinned key has made: only what it says itself."""
    outcome = SignatureOutcome.UNPINNED_KEY
    if facts.issuer is None:
        outcome = SignatureOutcome.BAD_SIGNATURE
    elif facts.hash_id not in ALLOWED_HASHES:
        outcome = SignatureOutcome.WEAK_HASH
    elif facts.created_at is not None and is_in_the_future(facts.created_at, now):
        outcome = SignatureOutcome.FUTURE_SIGNATURE
    detail = "no pinned key has made it"
    if facts.issuer is not None and not _FINGERPRINT.fullmatch(facts.issuer):
        detail += f"; it names the key {facts.issuer}"
    return _with_claims(SignatureReport(outcome, detail=detail), facts)


def _unavailable(facts: SignatureFacts, pin: Pin, detail: str) -> SignatureReport:
    report = SignatureReport(SignatureOutcome.VERIFIER_UNAVAILABLE, detail=detail)
    return _with_claims(report, facts, pin)


def _with_claims(
    report: SignatureReport, facts: SignatureFacts, pin: Pin | None = None
) -> SignatureReport:
    """Fill in what the signature claims about itself: evidence, never a reason to pass.

    `pin` is the key that was asked because the signature names it or a subkey of it.
    """
    claimed = facts.issuer or ""
    signer = pin.fingerprint if pin else claimed
    return SignatureReport(
        outcome=report.outcome,
        signer=signer if _FINGERPRINT.fullmatch(signer) else None,
        signed_at=facts.created_at,
        hash=HASH_NAMES.get(facts.hash_id, str(facts.hash_id)),
        status=report.status,
        detail=report.detail,
    )

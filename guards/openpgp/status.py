"""GnuPG's status lines to one outcome: a closed mapping in which nothing unknown is a pass.

The exit code alone says nothing (it is 0 for expired and revoked keys, SHA-1 and future dates), and
what GnuPG prints for people can be steered by the sender. Only `[GNUPG:]` lines count (DES-034).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from guards.openpgp.base import (
    ALLOWED_CLASSES,
    ALLOWED_HASHES,
    HASH_NAMES,
    SignatureOutcome,
    SignatureReport,
    is_in_the_future,
)

_PREFIX = "[GNUPG:] "

#: Words that decide. All others are ignored: good mail has them, and GnuPG may add more.
_COUNTED = frozenset(
    {"GOODSIG", "VALIDSIG", "BADSIG", "ERRSIG", "EXPSIG", "EXPKEYSIG", "REVKEYSIG", "NODATA"}
)

#: In this order: the first word that is there decides.
_REFUSALS = (
    ("BADSIG", SignatureOutcome.BAD_SIGNATURE),
    ("EXPKEYSIG", SignatureOutcome.EXPIRED_KEY),
    ("REVKEYSIG", SignatureOutcome.REVOKED_KEY),
    ("EXPSIG", SignatureOutcome.EXPIRED_SIGNATURE),
)


@dataclass(frozen=True, slots=True)
class ValidSig:
    """The fields of a VALIDSIG line that count."""

    created_at: datetime
    hash_id: int
    signature_class: int
    primary: str


def judge_status(
    output: bytes, *, exit_code: int, fingerprint: str, now: datetime
) -> SignatureReport:
    """The outcome that `output` (all status lines of one run) proves for the pinned `fingerprint`.

    GOOD only for exactly one NEWSIG, GOODSIG and VALIDSIG, none of the refusing words, exit code 0,
    a document signature, an allowed hash, a date not in the future, and this primary key.
    """
    lines = _read_lines(output)
    words = [line[0] for line in lines]
    counted = tuple(word for word in words if word in _COUNTED)
    valid = _read_validsig(lines)
    outcome, detail = _outcome(lines, words, valid, exit_code, fingerprint, now)
    return SignatureReport(
        outcome=outcome,
        signer=valid.primary if valid else None,
        signed_at=valid.created_at if valid else None,
        hash=HASH_NAMES.get(valid.hash_id, str(valid.hash_id)) if valid else None,
        status=counted,
        detail=detail,
    )


def _read_lines(output: bytes) -> list[list[str]]:
    text = output.decode("utf-8", "replace")
    lines = (line for line in text.split("\n") if line.startswith(_PREFIX))
    return [line[len(_PREFIX) :].split(" ") for line in lines]


def _outcome(
    lines: Sequence[list[str]],
    words: Sequence[str],
    valid: ValidSig | None,
    exit_code: int,
    fingerprint: str,
    now: datetime,
) -> tuple[SignatureOutcome, str]:
    if any(words.count(word) > 1 for word in ("NEWSIG", "GOODSIG", "VALIDSIG")):
        return SignatureOutcome.SEVERAL_SIGNATURES, "more than one signature was reported"
    for word, outcome in _REFUSALS:
        if word in words:
            return outcome, f"GnuPG said {word}"
    if "ERRSIG" in words:
        return _judge_errsig(next(line for line in lines if line[0] == "ERRSIG"), now)
    if "NODATA" in words:
        return SignatureOutcome.NO_SIGNATURE_DATA, "GnuPG found no OpenPGP data"
    if any(words.count(word) != 1 for word in ("NEWSIG", "GOODSIG", "VALIDSIG")) or valid is None:
        return SignatureOutcome.BAD_SIGNATURE, "GnuPG did not say that the signature is good"
    return _judge_validsig(valid, exit_code, fingerprint, now)


def _judge_errsig(fields: Sequence[str], now: datetime) -> tuple[SignatureOutcome, str]:
    """ERRSIG keyid pkalgo hashalgo class time rc: what GnuPG itself refuses to look at.

    It refuses hashes, and signatures of keys that do not exist yet.
    """
    if len(fields) > 3 and fields[3].isdecimal() and int(fields[3]) not in ALLOWED_HASHES:
        return SignatureOutcome.WEAK_HASH, f"hash algorithm {fields[3]} is not allowed"
    created_at = _read_moment(fields[5]) if len(fields) > 5 else None
    if created_at is not None and is_in_the_future(created_at, now):
        return SignatureOutcome.FUTURE_SIGNATURE, f"it is dated {created_at.isoformat()}"
    return SignatureOutcome.BAD_SIGNATURE, "GnuPG said ERRSIG"


def _judge_validsig(
    valid: ValidSig, exit_code: int, fingerprint: str, now: datetime
) -> tuple[SignatureOutcome, str]:
    if valid.primary != fingerprint:
        return SignatureOutcome.BAD_SIGNATURE, "the primary key is not the pinned one"
    if valid.signature_class not in ALLOWED_CLASSES:
        return SignatureOutcome.BAD_SIGNATURE, f"class {valid.signature_class:02x} signs no text"
    if valid.hash_id not in ALLOWED_HASHES:
        return SignatureOutcome.WEAK_HASH, f"hash algorithm {valid.hash_id} is not allowed"
    if is_in_the_future(valid.created_at, now):
        return SignatureOutcome.FUTURE_SIGNATURE, f"it is dated {valid.created_at.isoformat()}"
    if exit_code != 0:
        return SignatureOutcome.BAD_SIGNATURE, f"GnuPG ended with exit code {exit_code}"
    return SignatureOutcome.GOOD, ""


def _read_validsig(lines: Sequence[list[str]]) -> ValidSig | None:
    """VALIDSIG fpr date timestamp expires version reserved pkalgo hashalgo class primary."""
    fields = next((line for line in lines if line[0] == "VALIDSIG"), None)
    if fields is None or len(fields) < 11:
        return None
    created_at = _read_moment(fields[3])
    if created_at is None:
        return None
    try:
        return ValidSig(
            created_at=created_at,
            hash_id=int(fields[8]),
            signature_class=int(fields[9], 16),
            primary=fields[10].upper(),
        )
    except ValueError:
        return None


def _read_moment(text: str) -> datetime | None:
    """Seconds since 1970, or `20261130T090000`; None for anything else."""
    try:
        if "T" in text:
            return datetime.strptime(text, "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
        return datetime.fromtimestamp(int(text), UTC)
    except (ValueError, OverflowError, OSError):
        return None

"""What every verifier promises: the same tests for the real GnuPG and its sibling in memory."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from guards.openpgp import SignatureOutcome, Verifier, memory
from guards.openpgp.gnupg import GnuPGVerifier
from guards.types import Pin
from tests.keys import SESSION_START, Keys, pin_for, sign_detached

PAYLOAD = b"Content-Type: text/plain\r\n\r\n@agent do it\r\n"
DAY = timedelta(days=1)


@dataclass
class Real:
    """Generated keys and GnuPG."""

    keys: Keys
    verifier: Verifier

    def sign(self, name: str, payload: bytes = PAYLOAD, **options: Any) -> bytes:
        return sign_detached(getattr(self.keys, name), payload, **options)

    def pin(self, name: str) -> Pin:
        return pin_for(getattr(self.keys, name))


class Memory:
    """Made-up keys of the same names."""

    def __init__(self) -> None:
        self.verifier = memory.MemoryVerifier()
        later = SESSION_START + 370 * DAY
        self._keys = {
            "alice": memory.make_key("Alice", expires_at=later),
            "mallory": memory.make_key("Mallory", expires_at=later),
            "impostor": memory.make_key("Alice", expires_at=later),
            "expired": memory.make_key("Expired", expires_at=SESSION_START - 8 * DAY),
            "revoked": memory.make_key("Revoked", expires_at=later, revoked=True),
        }

    def sign(
        self,
        name: str,
        payload: bytes = PAYLOAD,
        *,
        at: datetime = SESSION_START,
        hash: str = "SHA256",
        expires: str | None = None,
    ) -> bytes:
        end = at + DAY if expires == "1d" else None
        return memory.sign(self._keys[name], payload, at=at, hash=hash, expires_at=end)

    def pin(self, name: str) -> Pin:
        key = self._keys[name]
        return Pin(frozenset({f"{name}@example.org"}), key.fingerprint, key.binary)


@pytest.fixture(params=["gnupg", "memory"])
def world(request: pytest.FixtureRequest) -> Real | Memory:
    if request.param == "memory":
        return Memory()
    return Real(request.getfixturevalue("keys"), GnuPGVerifier())


def _outcome(world: Real | Memory, signature: bytes, *pins: str, **options: Any) -> str:
    now = options.pop("now", None)
    report = world.verifier.verify(
        signed=options.get("signed", PAYLOAD),
        signature=signature,
        pins=[world.pin(name) for name in pins],
        now=now,
    )
    return report.outcome.value


@pytest.mark.fault("pgp-verify-02", "sister-19")
def test_a_good_signature_names_the_pinned_primary_and_its_date(world: Real | Memory) -> None:
    at = SESSION_START - timedelta(hours=2)
    report = world.verifier.verify(
        signed=PAYLOAD,
        signature=world.sign("alice", at=at),
        pins=[world.pin("mallory"), world.pin("alice")],
        now=None,
    )
    assert report.outcome is SignatureOutcome.GOOD
    assert report.signer == world.pin("alice").fingerprint
    assert (report.signed_at, report.hash) == (at, "SHA256")
    assert report.status == ("GOODSIG", "VALIDSIG")


@pytest.mark.invariant(8)
@pytest.mark.fault("pgp-verify-20", "W4", "sister-3")
def test_an_expired_key_is_never_good(world: Real | Memory) -> None:
    assert _outcome(world, world.sign("expired", at=SESSION_START - 9 * DAY), "expired") == (
        "expired-key"
    )


@pytest.mark.invariant(8)
@pytest.mark.fault("W4")
def test_a_revoked_key_is_never_good(world: Real | Memory) -> None:
    assert _outcome(world, world.sign("revoked"), "revoked") == "revoked-key"


@pytest.mark.invariant(8)
@pytest.mark.fault("pgp-verify-22")
def test_sha1_is_a_weak_hash(world: Real | Memory) -> None:
    assert _outcome(world, world.sign("alice", hash="SHA1"), "alice") == "weak-hash"


@pytest.mark.invariant(8)
@pytest.mark.fault("pgp-verify-23")
def test_a_signature_from_the_future_is_refused(world: Real | Memory) -> None:
    ahead = datetime.now(UTC) + 3 * DAY
    assert _outcome(world, world.sign("alice", at=ahead), "alice") == "future-signature"
    slightly = datetime.now(UTC) + timedelta(minutes=2)
    assert _outcome(world, world.sign("alice", at=slightly), "alice") == "good"


@pytest.mark.fault("pgp-verify-24")
def test_an_expired_signature_is_refused(world: Real | Memory) -> None:
    old = world.sign("alice", at=SESSION_START - 4 * DAY, expires="1d")
    assert _outcome(world, old, "alice") == "expired-signature"


@pytest.mark.invariant(8)
@pytest.mark.fault("pgp-verify-25", "pgp-verify-29")
def test_two_signatures_are_refused_in_either_order(world: Real | Memory) -> None:
    good, other = world.sign("alice"), world.sign("revoked")
    for both in (good + other, other + good, good + good, good + world.sign("impostor")):
        assert _outcome(world, both, "alice", "revoked") == "several-signatures"


@pytest.mark.invariant(8)
@pytest.mark.fault("pgp-verify-30")
@pytest.mark.parametrize("junk", [b"", b"x", b"twenty bytes of text", b"\x88", b"\xff" * 20])
def test_what_is_no_signature_is_no_signature_data(world: Real | Memory, junk: bytes) -> None:
    assert _outcome(world, junk, "alice") == "no-signature-data"


def test_other_bytes_than_the_signed_ones_are_a_bad_signature(world: Real | Memory) -> None:
    signature = world.sign("alice")
    assert _outcome(world, signature, "alice", signed=PAYLOAD + b" ") == "bad-signature"
    assert _outcome(world, signature, "alice", signed=PAYLOAD) == "good"


@pytest.mark.invariant(8)
@pytest.mark.fault("pgp-verify-01", "pgp-verify-18", "sister-7", "W2")
def test_a_key_that_nobody_pinned_is_named_and_not_good(world: Real | Memory) -> None:
    report = world.verifier.verify(
        signed=PAYLOAD, signature=world.sign("impostor"), pins=[world.pin("alice")], now=None
    )
    assert report.outcome is SignatureOutcome.UNPINNED_KEY
    assert report.signer == world.pin("impostor").fingerprint
    assert report.status == ()


def test_now_decides_about_expiry_and_about_the_future(world: Real | Memory) -> None:
    signature = world.sign("alice", at=SESSION_START - 2 * DAY)
    assert _outcome(world, signature, "alice", now=SESSION_START - DAY) == "good"
    assert _outcome(world, signature, "alice", now=SESSION_START + 500 * DAY) == "expired-key"
    assert _outcome(world, signature, "alice", now=SESSION_START - 3 * DAY) == "future-signature"
    assert _outcome(world, signature, "alice", now=SESSION_START - 900 * DAY) == "future-signature"
    early = world.sign("expired", at=SESSION_START - 9 * DAY)
    assert _outcome(world, early, "expired", now=SESSION_START - 9 * DAY) == "good"


@pytest.mark.parametrize(
    ("now", "outcome"),
    [
        (datetime.min.replace(tzinfo=UTC), "future-signature"),
        (datetime(1960, 1, 1, tzinfo=UTC), "future-signature"),
        (datetime(2107, 1, 1, tzinfo=UTC), "expired-key"),
        (datetime.max.replace(tzinfo=UTC), "expired-key"),
    ],
)
def test_now_may_be_any_moment_there_is(world: Real | Memory, now: datetime, outcome: str) -> None:
    assert _outcome(world, world.sign("alice"), "alice", now=now) == outcome

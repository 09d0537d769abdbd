"""Transport trust: every row of the table, in its order, and the faults of those before us."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from guards import trust
from guards.openpgp import KeyFacts, SignatureOutcome, SignatureReport, memory
from guards.openpgp.gnupg import GnuPGVerifier
from guards.types import (
    Pin,
    ProviderHeaders,
    SignedStructure,
    TransportFacts,
    TrustLevel,
    TrustReason,
    TrustVerdict,
)
from tests.keys import Keys, pin_for, sign_detached

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SIGNED = b"Content-Type: text/plain\r\n\r\n@agent do it\r\n"
PROTON = {"X-Pm-Content-Encryption": ("end-to-end",), "X-Pm-Origin": ("internal",)}
LATER = NOW + timedelta(days=300)

ALICE = memory.make_key("Alice", expires_at=LATER)
MALLORY = memory.make_key("Mallory", expires_at=LATER)
STRANGER = memory.make_key("Alice", expires_at=LATER)
REVOKED = memory.make_key("Revoked", expires_at=LATER, revoked=True)
EXPIRED = memory.make_key("Expired", expires_at=NOW - timedelta(days=1))


def _pin(key: KeyFacts, *addresses: str) -> Pin:
    return Pin(frozenset(addresses), key.fingerprint, key.binary)


PINS = (
    _pin(ALICE, "alice@example.org", "al@example.org"),
    _pin(MALLORY, "mallory@example.org"),
    _pin(REVOKED, "revoked@example.org"),
    _pin(EXPIRED, "expired@example.org"),
)


def _facts(key: KeyFacts | None = ALICE, **changes: Any) -> TransportFacts:
    at = changes.pop("at", NOW - timedelta(minutes=1))
    hash_name = changes.pop("hash", "SHA256")
    facts = TransportFacts(
        sender="alice@example.org",
        structure=SignedStructure.SIGNED if key else SignedStructure.NONE,
        signed=SIGNED if key else None,
        signature=memory.sign(key, SIGNED, at=at, hash=hash_name) if key else None,
    )
    return replace(facts, **changes)


def _classify(
    facts: TransportFacts, *, pins: tuple[Pin, ...] = PINS, available: bool = True
) -> TrustVerdict:
    return trust.classify(facts, pins, NOW, memory.MemoryVerifier(available=available))


def _words(verdict: TrustVerdict) -> tuple[str, str]:
    return verdict.level.value, verdict.reason.value


BRIDGE = {"proton_headers": PROTON, "loopback_bridge": True}


@pytest.mark.invariant(8)
@pytest.mark.parametrize(
    ("facts", "level", "reason"),
    [
        (_facts(), "verified", "pinned-key"),
        (_facts(sender="AL@example.org"), "verified", "pinned-key"),
        (_facts(None, **BRIDGE), "trusted", "proton-internal"),
        (_facts(None), "unverified", "unsigned"),
        (
            _facts(None, structure=SignedStructure.NOT_TOP_LEVEL),
            "unverified",
            "signature-not-top-level",
        ),
        (_facts(None, structure=SignedStructure.MALFORMED), "unverified", "malformed-signed"),
        (_facts(None, structure=SignedStructure.SIGNED), "unverified", "malformed-signed"),
        (_facts(None, structure=SignedStructure.ENCRYPTED), "unverified", "encrypted"),
        (_facts(STRANGER), "unverified", "unpinned-key"),
        (_facts(sender=None), "unverified", "no-identity"),
        (_facts(MALLORY), "untrusted", "key-of-someone-else"),
        (_facts(signed=SIGNED + b"x"), "untrusted", "bad-signature"),
        (_facts(EXPIRED, sender="expired@example.org"), "untrusted", "expired-key"),
        (_facts(REVOKED, sender="revoked@example.org"), "untrusted", "revoked-key"),
        (_facts(hash="SHA1"), "untrusted", "weak-hash"),
        (_facts(at=NOW + timedelta(hours=1)), "untrusted", "future-signature"),
        (_facts(signature=b""), "untrusted", "no-signature-data"),
        (_facts(signature=b"nothing"), "untrusted", "no-signature-data"),
    ],
)
def test_each_row_of_the_table(facts: TransportFacts, level: str, reason: str) -> None:
    assert _words(_classify(facts)) == (level, reason)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (_facts(sender=None, signature=b"", **BRIDGE), "no-identity"),
        (_facts(signature=b"", **BRIDGE), "no-signature-data"),
        (_facts(MALLORY, **BRIDGE), "key-of-someone-else"),
        (_facts(**BRIDGE), "pinned-key"),
        (_facts(STRANGER, **BRIDGE), "proton-internal"),
        (_facts(None, structure=SignedStructure.ENCRYPTED, **BRIDGE), "proton-internal"),
    ],
)
def test_the_rows_have_an_order(facts: TransportFacts, reason: str) -> None:
    assert _classify(facts).reason.value == reason


@pytest.mark.invariant(8)
def test_a_verifier_that_is_not_there_is_not_a_verdict_on_the_sender() -> None:
    verdict = _classify(_facts(), available=False)
    assert _words(verdict) == ("unverified", "verifier-unavailable")
    assert verdict.evidence.signer == ALICE.fingerprint


@pytest.mark.invariant(7)
@pytest.mark.parametrize("outcome", list(SignatureOutcome))
def test_only_one_outcome_is_ever_verified(outcome: SignatureOutcome) -> None:
    class Fixed:
        def verify(self, **_: object) -> SignatureReport:
            return SignatureReport(outcome, signer=ALICE.fingerprint)

    verdict = trust.classify(_facts(), PINS, NOW, Fixed())
    assert (verdict.level is TrustLevel.VERIFIED) == (outcome is SignatureOutcome.GOOD)


@pytest.mark.invariant(7)
@pytest.mark.fault("pgp-verify-01", "pgp-verify-02", "pgp-verify-18", "sister-7", "W7")
def test_a_good_signature_of_another_contacts_key_is_not_this_senders() -> None:
    verdict = _classify(_facts(MALLORY))
    assert _words(verdict) == ("untrusted", "key-of-someone-else")
    assert verdict.evidence.signer == MALLORY.fingerprint
    assert _words(_classify(_facts(MALLORY, sender="mallory@example.org")))[0] == "verified"


@pytest.mark.invariant(7)
def test_without_pins_nothing_is_verified() -> None:
    for facts in (_facts(), _facts(MALLORY), _facts(STRANGER)):
        assert _words(_classify(facts, pins=())) == ("unverified", "unpinned-key")


def test_a_key_pinned_to_two_contacts_verifies_both() -> None:
    pins = (_pin(ALICE, "other@example.org"), _pin(ALICE, "alice@example.org"))
    assert _words(_classify(_facts(), pins=pins)) == ("verified", "pinned-key")


@pytest.mark.invariant(7)
@pytest.mark.fault("pgp-verify-07", "W5")
@pytest.mark.parametrize("key", [ALICE, STRANGER])
def test_a_from_inside_the_signed_part_that_differs_is_never_verified(key: KeyFacts) -> None:
    verdict = _classify(_facts(key, signed_from="bob@example.org", **BRIDGE))
    assert _words(verdict) == ("unverified", "malformed-signed")
    assert "signed-from-differs" in verdict.evidence.notes
    same = _classify(_facts(key, signed_from="ALICE@example.org"))
    assert "signed-from-differs" not in same.evidence.notes


@pytest.mark.fault("sister-6", "W1")
def test_the_providers_headers_count_only_on_a_declared_loopback_bridge() -> None:
    elsewhere = _classify(_facts(None, proton_headers=PROTON))
    assert _words(elsewhere) == ("unverified", "unsigned")
    assert elsewhere.evidence.provider_headers is ProviderHeaders.IGNORED
    assert elsewhere.evidence.notes == ("provider-headers-not-from-bridge",)
    bridge = _classify(_facts(None, **BRIDGE))
    assert bridge.evidence.provider_headers is ProviderHeaders.HONOURED
    assert _classify(_facts(None)).evidence.provider_headers is ProviderHeaders.ABSENT


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Pm-Origin": ("internal",)},
        {"X-Pm-Content-Encryption": ("end-to-end",)},
        {**PROTON, "X-Pm-Origin": ("internal", "internal")},
        {**PROTON, "X-Pm-Origin": ("internal", "external")},
        {**PROTON, "x-pm-origin": ("internal",)},
        {**PROTON, "X-Pm-Origin": ("Internal",)},
        {**PROTON, "X-Pm-Content-Encryption": ("on-delivery",)},
        {**PROTON, "X-Pm-Origin": ()},
        {**PROTON, "X-Pm-Origin": ("internal; x",)},
    ],
)
def test_the_providers_headers_count_only_whole_once_and_exact(
    headers: dict[str, tuple[str, ...]],
) -> None:
    verdict = _classify(_facts(None, proton_headers=headers, loopback_bridge=True))
    assert _words(verdict) == ("unverified", "unsigned")
    assert verdict.evidence.provider_headers is ProviderHeaders.IGNORED


@pytest.mark.fault("pgp-verify-14")
def test_a_signature_that_something_wraps_does_not_count(keys: Keys) -> None:
    facts = _facts(structure=SignedStructure.NOT_TOP_LEVEL)
    assert _words(_classify(facts)) == ("unverified", "signature-not-top-level")


@pytest.mark.invariant(7)
@pytest.mark.fault("pgp-verify-04", "pgp-verify-06", "pgp-verify-19")
def test_only_the_pin_of_the_from_address_counts(keys: Keys) -> None:
    """Real keys: the list's key, a Sender's key and a key with the right UID verify nobody."""
    real = GnuPGVerifier()
    pins = (pin_for(keys.alice), pin_for(keys.mallory, "list@example.org"))
    now = datetime.now(UTC)
    for key, words in (
        (keys.alice, ("verified", "pinned-key")),
        (keys.mallory, ("untrusted", "key-of-someone-else")),
        (keys.impostor, ("unverified", "unpinned-key")),
    ):
        facts = _facts(None, structure=SignedStructure.SIGNED, signed=SIGNED)
        facts = replace(facts, signature=sign_detached(key, SIGNED))
        verdict = trust.classify(facts, pins, now, real)
        assert _words(verdict) == words
        assert verdict.evidence.signer == key.fingerprint


def test_the_evidence_says_who_when_how_and_in_which_words() -> None:
    at = NOW - timedelta(minutes=1)
    evidence = _classify(_facts(notes=("an-outer-footer",))).evidence
    assert (evidence.signer, evidence.signed_at, evidence.hash) == (ALICE.fingerprint, at, "SHA256")
    assert evidence.status == ("GOODSIG", "VALIDSIG")
    assert evidence.notes == ("an-outer-footer",)


@pytest.mark.parametrize(
    ("line", "bound"),
    [
        ("@claude summarise this", True),
        ("please, @Claude: summarise", True),
        ("(@claude)", True),
        ("To claude@agents.example.org: go", True),
        ("mailto:<CLAUDE@agents.example.org>", True),
        ("\n  \n@claude after blank lines", True),
        ("summarise this\n@claude", False),
        ("> @claude quoted", False),
        ("@claude2 and @claude-dev and x@claude", False),
        ("@claude.evil.org", False),
        ("claude@agents.example.org.evil.com", False),
        ("not-claude@agents.example.org", False),
        ("claude@agents.example.organic", False),
        ("@claudé", False),
        ("", False),
    ],
)
def test_the_first_line_binds_by_address_or_handle(line: str, bound: bool) -> None:
    assert (
        trust.is_bound(
            signed_text=line, signed_to=(), email="claude@agents.example.org", handle="claude"
        )
        is bound
    )


def test_a_protected_to_binds_and_an_unknown_identity_has_no_handle() -> None:
    email = "claude@agents.example.org"
    to = ("bob@example.org", "Claude@Agents.example.org")
    assert trust.is_bound(signed_text=None, signed_to=to, email=email, handle=None)
    assert not trust.is_bound(signed_text=None, signed_to=("bob@x",), email=email, handle=None)
    assert not trust.is_bound(signed_text="@None go", signed_to=(), email=email, handle=None)


@pytest.mark.invariant(12)
def test_age_is_counted_from_the_signature_and_a_restore_stamps_a_floor() -> None:
    day = timedelta(hours=24)
    assert not trust.is_too_old(when=NOW - day, now=NOW, max_age=day)
    assert trust.is_too_old(when=NOW - day - timedelta(seconds=1), now=NOW, max_age=day)
    assert trust.is_too_old(when=None, now=NOW, max_age=day)
    hour_ago = NOW - timedelta(hours=1)
    assert trust.is_too_old(when=hour_ago, now=NOW, max_age=day, not_before=NOW)
    assert not trust.is_too_old(when=hour_ago, now=NOW, max_age=day, not_before=hour_ago)


def _replay_key(facts: TransportFacts, **options: Any) -> str:
    values = {"message_id": "1@x", "text": "do it", "verdict": _classify(facts), **options}
    return trust.replay_key(facts=facts, **values)


@pytest.mark.invariant(12)
@pytest.mark.fault("W6")
def test_the_same_signed_bytes_have_one_key_whatever_is_around_them() -> None:
    facts = _facts()
    key = _replay_key(facts)
    assert len(key) == 64
    assert key == _replay_key(facts, message_id="2@y", text="other")
    assert key == _replay_key(replace(facts, notes=("moved",)))
    for white in (b" ", b"\r\n", b"\t\r\r\n"):
        stretched = replace(facts, signed=SIGNED.replace(b"do it\r\n", b"do it" + white))
        assert key == _replay_key(stretched, verdict=_classify(facts))


def test_other_text_another_second_or_another_key_have_another_key() -> None:
    base = _facts()
    keys = {
        _replay_key(base),
        _replay_key(_facts(at=NOW - timedelta(minutes=2))),
        _replay_key(_facts(MALLORY, sender="mallory@example.org")),
        _replay_key(replace(base, signed=SIGNED + b"more"), verdict=_classify(base)),
    }
    assert len(keys) == 4


def test_trusted_mail_is_known_by_its_id_and_text_and_other_mail_has_no_key() -> None:
    facts = _facts(None, **BRIDGE)
    assert _replay_key(facts) == _replay_key(replace(facts, sender="b@x"))
    assert _replay_key(facts) != _replay_key(facts, text="other")
    assert _replay_key(facts) != _replay_key(facts, message_id="2@x")
    assert _replay_key(facts, message_id="a", text="b") != _replay_key(
        facts, message_id="ab", text=""
    )
    assert _replay_key(_facts(None)) == ""
    assert _replay_key(_facts(STRANGER)) == ""


@pytest.mark.fault("W6")
def test_a_text_signature_cannot_be_stretched_into_a_second_key(keys: Keys) -> None:
    """A text signature (class 01) also fits other line ends, so they must not make another key."""
    now = datetime.now(UTC)
    signature = sign_detached(keys.alice, SIGNED, text_mode=True)
    stretched = SIGNED.replace(b"do it\r\n", b"do it\r\r\n")
    found = set()
    for signed in (SIGNED, stretched):
        facts = replace(_facts(None), structure=SignedStructure.SIGNED, signed=signed)
        facts = replace(facts, signature=signature)
        verdict = trust.classify(facts, [pin_for(keys.alice)], now, GnuPGVerifier())
        assert verdict.level is TrustLevel.VERIFIED
        found.add(_replay_key(facts, verdict=verdict))
    assert len(found) == 1


def test_the_tables_hold_the_whole_closed_list_of_reasons() -> None:
    named = {
        TrustReason.PINNED_KEY,
        TrustReason.PROTON_INTERNAL,
        TrustReason.NO_IDENTITY,
        TrustReason.KEY_OF_SOMEONE_ELSE,
        TrustReason.UNPINNED_KEY,
        TrustReason.VERIFIER_UNAVAILABLE,
    }
    assert {*trust._UNTRUSTED.values(), *trust._UNJUDGED.values(), *named} == set(TrustReason)

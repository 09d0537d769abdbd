"""What only the real GnuPG can show: its words, its moods, and how little it leaves behind."""

from __future__ import annotations

import errno
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guards.openpgp import SignatureOutcome, SignatureReport, read_key, standby
from guards.openpgp.gnupg import GnuPGVerifier, choose_pins
from guards.openpgp.packets import (
    MalformedPackets,
    dearmor,
    key_fingerprints,
    read_signatures,
    split_packets,
)
from guards.openpgp.status import judge_status
from tests.keys import SESSION_START, Keys, pin_for, public_key, sign_detached

PAYLOAD = b"@agent do it\r\n"
PINNED = "A" * 40
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
STAMP = int(NOW.timestamp()) - 60

GOOD = [
    "NEWSIG",
    f"KEY_CONSIDERED {PINNED} 0",
    "SIG_ID abc 2026-11-30 1",
    "GOODSIG AAAAAAAAAAAAAAAA Alice <alice@example.org>",
    f"VALIDSIG {PINNED} 2026-11-30 {STAMP} 0 4 0 22 8 00 {PINNED}",
]


@pytest.fixture
def signature(keys: Keys) -> bytes:
    """Alice's good one, made before a test hides the real gpg.

    Dated, so that it is from nobody's future, however late in the session a test runs.
    """
    return sign_detached(keys.alice, PAYLOAD, at=SESSION_START)


def _judge(lines: list[str], *, exit_code: int = 0) -> SignatureReport:
    output = "".join(f"[GNUPG:] {line}\n" for line in lines).encode()
    return judge_status(output, exit_code=exit_code, fingerprint=PINNED, now=NOW)


def _verify(keys: Keys, signature: bytes, *pinned: str, **options: object) -> SignatureReport:
    return GnuPGVerifier().verify(
        signed=options.get("signed", PAYLOAD),  # type: ignore[arg-type]
        signature=signature,
        pins=[pin_for(getattr(keys, name)) for name in pinned],
        now=options.get("now"),  # type: ignore[arg-type]
    )


def test_the_words_of_a_good_signature_are_good() -> None:
    report = _judge(GOOD)
    assert report.outcome is SignatureOutcome.GOOD
    assert report.status == ("GOODSIG", "VALIDSIG")


def test_words_that_good_mail_has_and_words_to_come_change_nothing() -> None:
    extra = [
        "KEYEXPIRED 1700000000", "NOTATION_NAME x@y", "NOTATION_DATA z", "POLICY_URL http://x",
        "TRUST_ULTIMATE 0 pgp", "PROGRESS x", "VERIFICATION_COMPLIANCE_MODE 23", "NEW_WORD_OF_2031",
    ]  # fmt: skip
    assert _judge([*extra, *GOOD, *extra]).outcome is SignatureOutcome.GOOD


@pytest.mark.invariant(8)
@pytest.mark.fault("pgp-verify-20")
@pytest.mark.parametrize("index", [0, 3, 4])
def test_a_word_that_is_missing_or_unknown_is_never_a_pass(index: int) -> None:
    """Negative control for the closed mapping: without any one of the three it is not good."""
    without = GOOD[:index] + GOOD[index + 1 :]
    assert _judge(without).outcome is SignatureOutcome.BAD_SIGNATURE
    renamed = [*GOOD[:index], "BEST" + GOOD[index], *GOOD[index + 1 :]]
    assert _judge(renamed).outcome is SignatureOutcome.BAD_SIGNATURE


@pytest.mark.invariant(8)
@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("BADSIG A x", "bad-signature"),
        ("EXPSIG A x", "expired-signature"),
        ("EXPKEYSIG A x", "expired-key"),
        ("REVKEYSIG A x", "revoked-key"),
        ("ERRSIG A 22 8 00 1 9 -", "bad-signature"),
        ("ERRSIG A 1 1 00 1 5 -", "weak-hash"),
        (f"ERRSIG A 22 8 00 {STAMP + 7200} 4 -", "future-signature"),
        ("ERRSIG A 22 8 00 never 4 -", "bad-signature"),
        ("ERRSIG", "bad-signature"),
        ("NODATA 4", "no-signature-data"),
        ("NEWSIG", "several-signatures"),
        (GOOD[3], "several-signatures"),
        (GOOD[4], "several-signatures"),
    ],
)
def test_a_refusing_word_beside_good_ones_refuses(line: str, outcome: str) -> None:
    assert _judge([*GOOD, line]).outcome.value == outcome
    assert _judge([line, *GOOD]).outcome.value == outcome


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        (f"VALIDSIG {PINNED} d {STAMP} 0 4 0 22 2 00 {PINNED}", "weak-hash"),
        (f"VALIDSIG {PINNED} d {STAMP} 0 4 0 22 3 00 {PINNED}", "weak-hash"),
        (f"VALIDSIG {PINNED} d {STAMP} 0 4 0 22 8 10 {PINNED}", "bad-signature"),
        (f"VALIDSIG {PINNED} d {STAMP} 0 4 0 22 8 00 {'B' * 40}", "bad-signature"),
        (f"VALIDSIG {'B' * 40} d {STAMP} 0 4 0 22 8 01 {PINNED}", "good"),
        (f"VALIDSIG {PINNED} d {STAMP + 7200} 0 4 0 22 8 00 {PINNED}", "future-signature"),
        (f"VALIDSIG {PINNED} d 20261130T110000 0 4 0 22 10 00 {PINNED}", "good"),
        (f"VALIDSIG {PINNED} d {STAMP} 0 4 0 22 8 00", "bad-signature"),
        (f"VALIDSIG {PINNED} d never 0 4 0 22 8 00 {PINNED}", "bad-signature"),
    ],
)
def test_the_fields_of_validsig_decide(line: str, outcome: str) -> None:
    assert _judge([*GOOD[:4], line]).outcome.value == outcome


def test_an_exit_code_can_refuse_but_never_pass() -> None:
    assert _judge(GOOD, exit_code=2).outcome is SignatureOutcome.BAD_SIGNATURE
    assert _judge([], exit_code=0).outcome is SignatureOutcome.BAD_SIGNATURE


@pytest.mark.fault("W3")
def test_a_notation_that_prints_another_fingerprint_steers_nothing(keys: Keys) -> None:
    lie = f"x@y=%0A[GNUPG:] VALIDSIG {keys.alice.fingerprint} using key {keys.alice.fingerprint}"
    signature = sign_detached(keys.mallory, PAYLOAD, notation=lie)
    report = _verify(keys, signature, "alice", "mallory")
    assert report.outcome is SignatureOutcome.GOOD
    assert report.signer == keys.mallory.fingerprint
    assert _verify(keys, signature, "alice").outcome is SignatureOutcome.UNPINNED_KEY


@pytest.mark.fault("W9")
def test_a_signing_subkey_counts_for_its_primary(keys: Keys) -> None:
    report = _verify(keys, sign_detached(keys.with_subkey, PAYLOAD), "alice", "with_subkey")
    assert report.outcome is SignatureOutcome.GOOD
    assert report.signer == keys.with_subkey.fingerprint
    assert keys.with_subkey.signing_fingerprint != keys.with_subkey.fingerprint


def test_a_refused_signature_of_a_subkey_is_said_to_be_of_its_primary(keys: Keys) -> None:
    signature = sign_detached(keys.with_subkey, PAYLOAD)
    report = _verify(keys, signature, "with_subkey", signed=PAYLOAD + b"more")
    assert report.outcome is SignatureOutcome.BAD_SIGNATURE
    assert report.signer == keys.with_subkey.fingerprint
    assert _verify(keys, signature).signer == keys.with_subkey.signing_fingerprint


def test_a_signature_that_names_a_key_id_only_has_no_signer_but_a_note(keys: Keys) -> None:
    version_3 = bytes.fromhex("0305" + "00" + "65000000") + bytes.fromhex(keys.mallory.key_id)
    packet = version_3 + bytes([22, 8, 0, 0, 0, 1, 1])
    report = _verify(keys, bytes([0x88, len(packet)]) + packet, "alice")
    assert report.outcome is SignatureOutcome.UNPINNED_KEY
    assert report.signer is None
    assert keys.mallory.key_id in report.detail


@pytest.mark.parametrize("options", [{"armor": False}, {"text_mode": True}, {"hash": "SHA512"}])
def test_binary_text_mode_and_longer_hashes_are_fine(keys: Keys, options: dict) -> None:
    signature = sign_detached(keys.alice, PAYLOAD, **options)
    assert _verify(keys, signature, "alice").outcome is SignatureOutcome.GOOD


@pytest.mark.fault("W8")
def test_a_short_suffix_of_a_fingerprint_is_not_enough(keys: Keys) -> None:
    pin = pin_for(keys.alice)
    assert choose_pins([pin], keys.alice.fingerprint) == [pin]
    assert choose_pins([pin], keys.alice.key_id) == [pin]
    assert choose_pins([pin], keys.alice.fingerprint[-8:]) == []
    assert choose_pins([pin], None) == []


def test_something_after_a_whole_signature_is_a_bad_signature(keys: Keys) -> None:
    signature = sign_detached(keys.alice, PAYLOAD, armor=False)
    assert _verify(keys, signature + b"\xcb\x01a", "alice").outcome.value == "bad-signature"
    assert _verify(keys, signature + b"text", "alice").outcome.value == "bad-signature"
    assert _verify(keys, signature[:-1], "alice").outcome.value == "no-signature-data"
    assert _verify(keys, b"\x00" * 70_000, "alice").outcome.value == "bad-signature"


def test_a_flipped_bit_in_a_signature_never_changes_what_a_good_one_says(keys: Keys) -> None:
    """Some bits are not signed (unhashed area, lengths of numbers): they must not matter."""
    signature = sign_detached(keys.alice, PAYLOAD, armor=False)
    whole = _verify(keys, signature, "alice")
    for offset in range(0, len(signature), 5):
        flipped = bytearray(signature)
        flipped[offset] ^= 0x01
        report = _verify(keys, bytes(flipped), "alice")
        assert report.outcome is not SignatureOutcome.GOOD or report == whole


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300))
def test_reading_packets_of_any_bytes_ends_in_facts_or_a_refusal(content: bytes) -> None:
    for prefix in (b"", b"\x88", b"\xc2", b"-----BEGIN PGP SIGNATURE-----\n\n"):
        try:
            read_signatures(prefix + content)
        except MalformedPackets:
            continue


def test_a_public_key_names_its_primary_first(keys: Keys) -> None:
    found = key_fingerprints(public_key(keys.with_subkey))
    assert found[0] == keys.with_subkey.fingerprint
    assert keys.with_subkey.signing_fingerprint in found[1:]


def _stand_in(folder: Path, script: str) -> str:
    """A program called gpgv (and gpg) that behaves as told; the PATH that has it."""
    for name in ("gpgv", "gpg"):
        program = folder / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    return f"{folder}"


@pytest.mark.invariant(8, 16)
@pytest.mark.parametrize(
    "script",
    ["exit 2", "kill -SEGV $$", "exec sleep 60", "sleep 60 & wait", "exit 127"],
)
def test_gnupg_that_fails_or_hangs_is_unavailable_and_leaves_nobody_behind(
    keys: Keys, signature: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    """Neither the one that was asked nor the one that waits, which may end before it runs."""
    monkeypatch.setenv("PATH", _stand_in(tmp_path, f"echo $$ >> {tmp_path}/pids\n{script}"))
    report = GnuPGVerifier(timeout=0.5).verify(
        signed=PAYLOAD,
        signature=signature,
        pins=[pin_for(keys.alice)],
        now=None,
    )
    assert report.outcome is SignatureOutcome.VERIFIER_UNAVAILABLE
    assert report.signer == keys.alice.fingerprint
    standby.release()
    started = (tmp_path / "pids").read_text().split()
    assert started
    for pid in started:
        _assert_group_is_gone(int(pid))


def _assert_group_is_gone(group: int) -> None:
    for _ in range(100):
        if not _left_of(group):
            return
        time.sleep(0.02)
    raise AssertionError(f"process group {group} is still there")


def _left_of(group: int) -> list[str]:
    """Who of that group lives, or is dead and waits for us; another parent may take its time."""
    left = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent, its_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and (state not in "ZX" or int(parent) == os.getpid()):
                left.append(stat.parent.name)
    return left


@pytest.mark.invariant(8)
def test_gnupg_that_is_missing_is_unavailable(
    keys: Keys, signature: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for now in (None, SESSION_START - timedelta(days=1)):
        report = GnuPGVerifier().verify(
            signed=PAYLOAD, signature=signature, pins=[pin_for(keys.alice)], now=now
        )
        assert report.outcome is SignatureOutcome.VERIFIER_UNAVAILABLE
        assert "not installed" in report.detail


@pytest.mark.invariant(16)
@pytest.mark.fault("pgp-verify-19")
def test_verifying_writes_nothing_anywhere(
    keys: Keys, signature: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GNUPGHOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for now in (None, SESSION_START - timedelta(minutes=10)):
        _verify(keys, signature, "alice", now=now)
    assert list(tmp_path.iterdir()) == []


def test_the_gpgv_that_waits_is_used_once_and_replaced(keys: Keys, signature: bytes) -> None:
    standby.release()
    for _ in range(3):
        assert _verify(keys, signature, "alice").outcome is SignatureOutcome.GOOD
    waiting = [prepared._child.pid for prepared in standby._waiting]
    assert len(waiting) == 1
    assert _verify(keys, signature, "mallory").outcome is SignatureOutcome.UNPINNED_KEY
    bad = _verify(keys, signature, "alice", signed=b"other")
    assert bad.outcome is SignatureOutcome.BAD_SIGNATURE
    assert [prepared._child.pid for prepared in standby._waiting] != waiting
    _assert_group_is_gone(waiting[0])
    last = standby._waiting[0]._child.pid
    standby.release()
    _assert_group_is_gone(last)


@pytest.mark.parametrize("fault", ["killed", "old", "replaced"])
def test_a_waiting_gpgv_that_is_not_fit_is_not_used(
    keys: Keys, signature: bytes, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    for _ in range(2):
        _verify(keys, signature, "alice")
    prepared = standby._waiting[0]
    if fault == "killed":
        os.kill(prepared._child.pid, signal.SIGKILL)
        os.waitid(os.P_PID, prepared._child.pid, os.WEXITED | os.WNOWAIT)
    elif fault == "old":
        monkeypatch.setattr(prepared, "_born", prepared._born - 301)
    else:
        monkeypatch.setattr(prepared, "program", "/usr/local/bin/gpgv")
    assert _verify(keys, signature, "alice").outcome is SignatureOutcome.GOOD
    _assert_group_is_gone(prepared._child.pid)


def test_verifying_from_many_threads_at_once_mixes_nothing_up(keys: Keys) -> None:
    texts = [f"text {number}\r\n".encode() for number in range(12)]
    signatures = [sign_detached(keys.alice, text) for text in texts]

    def outcome(number: int) -> tuple[str, str]:
        verifier, pins = GnuPGVerifier(), [pin_for(keys.alice)]
        right, wrong = signatures[number], signatures[number - 1]
        return tuple(  # type: ignore[return-value]
            verifier.verify(signed=texts[number], signature=one, pins=pins, now=None).outcome.value
            for one in (right, wrong)
        )

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(outcome, range(12))) == {("good", "bad-signature")}


@pytest.mark.invariant(16)
@pytest.mark.fault("runner-07")
def test_a_waiting_gpgv_ends_with_the_process_it_waits_for(keys: Keys, signature: bytes) -> None:
    """Also in a forked worker, whose parent has one of its own."""
    for _ in range(2):
        _verify(keys, signature, "alice")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        report = ""
        for _ in range(2):
            report = _verify(keys, signature, "alice").outcome.value
        os.write(writing, f"{report} {standby._waiting[0]._child.pid}".encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    outcome, pid = os.read(reading, 100).decode().split()
    os.close(reading)
    os.close(writing)
    assert outcome == "good"
    _assert_group_is_gone(int(pid))
    assert standby._waiting[0].is_fit(standby._waiting[0].program)
    assert _verify(keys, signature, "alice").outcome is SignatureOutcome.GOOD


def test_a_keys_own_notes_about_what_was_checked_are_not_believed(keys: Keys) -> None:
    """Trust packets in a key file would make GnuPG believe a forged self-signature."""
    forged = b""
    for tag, body, packet in split_packets(public_key(keys.with_subkey)):
        if tag == 2 and body[1] == 0x18:
            packet = packet[:-1] + bytes([packet[-1] ^ 1])
        forged += packet + (b"\xcc\x02\x00\x03" if tag == 2 else b"")
    pin = replace(pin_for(keys.with_subkey), public_key=forged)
    signature = sign_detached(keys.with_subkey, PAYLOAD, at=SESSION_START)
    for now in (None, SESSION_START - timedelta(seconds=30)):
        report = GnuPGVerifier().verify(signed=PAYLOAD, signature=signature, pins=[pin], now=now)
        assert report.outcome is SignatureOutcome.BAD_SIGNATURE
    assert b"\xcc\x02\x00\x03" not in read_key(forged).binary


def _in_new_format(packets: bytes) -> bytes:
    """The same packets with the headers that other programs write (RFC 9580 §4.2.1)."""
    written = b""
    for tag, body, _ in split_packets(packets):
        written += bytes([0xC0 | tag, 0xFF]) + len(body).to_bytes(4, "big") + body
    return written


def test_keys_and_signatures_of_other_programs_count_too(keys: Keys, signature: bytes) -> None:
    pin = replace(pin_for(keys.alice), public_key=_in_new_format(keys.alice.public))
    renewed = _in_new_format(dearmor(signature))
    for now in (None, SESSION_START + timedelta(minutes=4)):
        report = GnuPGVerifier().verify(signed=PAYLOAD, signature=renewed, pins=[pin], now=now)
        assert report.outcome is SignatureOutcome.GOOD
    assert read_key(pin.public_key).fingerprint == keys.alice.fingerprint


@pytest.mark.parametrize("ends", [b"\n", b"\r\n", b" \r\n"])
def test_armour_is_read_with_any_line_ends_headers_and_text_around(
    signature: bytes, ends: bytes
) -> None:
    lines = signature.splitlines()
    lines.insert(1, b"Comment: made by hand")
    dressed = b"before" + ends + ends.join(lines) + ends + b"after" + ends
    assert dearmor(dressed) == dearmor(signature)
    assert dearmor(dressed.replace(b"-----END", b"-----FIN")) == b""
    assert dearmor(b"-----BEGIN PGP SIGNATURE-----\n" * 30_000) == b""
    with pytest.raises(MalformedPackets):
        dearmor(signature.replace(b"iH", b"i!"))


def test_systems_without_memory_files_and_pidfds_verify_as_well(
    keys: Keys, signature: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    standby.release()
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.delattr(os, "pidfd_open")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for now in (None, None, SESSION_START + timedelta(minutes=4)):
        assert _verify(keys, signature, "alice", now=now).outcome is SignatureOutcome.GOOD
    assert _verify(keys, signature, "alice", signed=b"x").outcome.value == "bad-signature"
    standby.release()
    assert list(tmp_path.iterdir()) == []


def test_no_descriptor_is_left_open_by_verifying(keys: Keys, signature: bytes) -> None:
    _verify(keys, signature, "alice")
    _verify(keys, signature, "alice")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for now in (None, SESSION_START + timedelta(minutes=4)):
        _verify(keys, signature, "alice", now=now)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_system_without_descriptors_left_is_unavailable_not_an_error(
    keys: Keys, signature: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    standby.release()

    def refuse(name: str) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "memfd_create", refuse)
    report = _verify(keys, signature, "alice")
    assert report.outcome is SignatureOutcome.VERIFIER_UNAVAILABLE
    assert "Too many open files" in report.detail


def test_a_refusal_of_a_waiting_gpgv_is_asked_again_of_a_fresh_one(
    keys: Keys, signature: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gpgv that read its (empty) keyring too early would refuse: that must not decide."""
    for _ in range(2):
        _verify(keys, signature, "alice")
    assert standby._waiting
    monkeypatch.setattr(standby._Prepared, "fill", lambda self, keyring, signed: None)
    assert _verify(keys, signature, "alice").outcome is SignatureOutcome.GOOD
    assert _verify(keys, signature, "alice", signed=b"other").outcome.value == "bad-signature"

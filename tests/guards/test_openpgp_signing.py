"""Signing with an identity's key: what must not sign does not, and passphrases stay unseen."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from guards import openpgp
from guards.exceptions import (
    InvalidInput,
    OpenPGPUnavailable,
    SecretUnavailable,
    SigningRefused,
)
from guards.openpgp import SignatureOutcome
from tests.keys import Key, Keys, gpg, pin_for, public_key, remove_home

PAYLOAD = b"Content-Type: text/plain\r\n\r\nDone.\r\n"


def _sign(key: Key, reference: str = "", home: Path | None = None) -> openpgp.Signature:
    return openpgp.sign(
        home=home or key.home,
        fingerprint=key.fingerprint,
        passphrase_ref=reference,
        payload=PAYLOAD,
    )


@pytest.mark.fault("sister-44")
def test_it_signs_with_a_key_without_a_passphrase_and_the_signature_verifies(keys: Keys) -> None:
    signature = _sign(keys.agent)
    assert signature.armored.startswith(b"-----BEGIN PGP SIGNATURE-----")
    assert signature.micalg == "pgp-sha512"
    report = openpgp.verifier().verify(
        signed=PAYLOAD, signature=signature.armored, pins=[pin_for(keys.agent)], now=None
    )
    assert report.outcome is SignatureOutcome.GOOD
    assert report.hash == "SHA512"


def test_it_refuses_a_key_without_an_expiry_date_before_anything_is_signed(keys: Keys) -> None:
    with pytest.raises(SigningRefused, match="no expiry date"):
        _sign(keys.eternal)


@pytest.mark.fault("sister-3")
def test_it_refuses_a_key_past_its_expiry(keys: Keys) -> None:
    with pytest.raises(SigningRefused, match="expired on"):
        _sign(keys.expired)


def test_it_refuses_a_revoked_key(keys: Keys) -> None:
    key = keys.make("Turncoat")
    stored = (key.home / "openpgp-revocs.d" / f"{key.fingerprint}.rev").read_text()
    gpg(key.home, "--trust-model", "pgp", "--import",
        stdin=stored.replace(":-----BEGIN", "-----BEGIN").encode())  # fmt: skip
    with pytest.raises(SigningRefused, match="revoked"):
        _sign(key)


def test_a_passphrase_comes_from_its_reference_and_a_wrong_one_fails(
    keys: Keys, tmp_path: Path
) -> None:
    home = keys.separate_home()
    (home / "gpg-agent.conf").write_text("s2k-count 65536\n")  # no calibration at each start
    gpg(home, "--passphrase", "correct horse", "--quick-generate-key", "P <p@example.org>",
        "ed25519", "sign", "1y")  # fmt: skip
    listing = gpg(home, "--with-colons", "--list-keys").decode().splitlines()
    fingerprint = next(line.split(":")[9] for line in listing if line.startswith("fpr"))
    key = replace(keys.agent, home=home, fingerprint=fingerprint)
    secret = tmp_path / "passphrase"
    secret.write_text("wrong\n")
    secret.chmod(0o600)
    remove_agent(home)
    with pytest.raises(OpenPGPUnavailable, match="did not sign"):
        _sign(key, f"file:{secret}")
    secret.write_text("correct horse\n")
    assert _sign(key, f"file:{secret}").armored
    secret.chmod(0o644)
    with pytest.raises(SecretUnavailable, match="mode"):
        _sign(key, f"file:{secret}")


def remove_agent(home: Path) -> None:
    """Make the home's agent forget the passphrase it was given at generation."""
    copy = Path(tempfile.mkdtemp(prefix="csk-", dir="/tmp"))
    shutil.copytree(home, copy / "h", ignore=shutil.ignore_patterns("S.*"))
    remove_home(home)
    shutil.copytree(copy / "h", home)
    shutil.rmtree(copy)


@pytest.mark.fault("sister-23")
def test_a_home_with_a_long_path_signs_too(keys: Keys, tmp_path: Path) -> None:
    long = tmp_path / ("deep" * 20) / ("deeper" * 10)
    shutil.copytree(keys.agent.home, long, ignore=shutil.ignore_patterns("S.*"))
    long.chmod(0o700)
    assert len(str(long)) > 108
    assert _sign(keys.agent, home=long).armored


def test_a_home_or_a_key_that_is_not_there_is_said(keys: Keys, tmp_path: Path) -> None:
    with pytest.raises(OpenPGPUnavailable, match="is not there"):
        _sign(keys.agent, home=tmp_path / "nowhere")
    with pytest.raises(OpenPGPUnavailable, match="no secret key"):
        _sign(replace(keys.agent, fingerprint=keys.bob.fingerprint))


def test_a_key_is_read_from_armour_and_from_binary_alike(keys: Keys) -> None:
    binary = openpgp.read_key(public_key(keys.alice))
    armoured = openpgp.read_key(public_key(keys.alice, armor=True))
    assert binary == armoured
    assert binary.fingerprint == keys.alice.fingerprint
    assert binary.uid == "Alice <alice@example.org>"
    assert binary.expires_at == keys.alice.expires
    assert binary.binary == keys.alice.public
    assert not binary.revoked


def test_a_key_without_an_end_a_revoked_and_an_expired_one_are_read_as_such(keys: Keys) -> None:
    assert openpgp.read_key(public_key(keys.eternal)).expires_at is None
    assert openpgp.read_key(public_key(keys.revoked)).revoked
    expired = openpgp.read_key(public_key(keys.expired)).expires_at
    assert expired is not None
    assert expired < datetime.now(UTC) - timedelta(days=1)


@pytest.mark.fault("W8")
def test_two_keys_a_secret_key_and_junk_are_refused(keys: Keys) -> None:
    two = public_key(keys.alice) + public_key(keys.bob)
    armoured = public_key(keys.alice, armor=True) + public_key(keys.bob, armor=True)
    secret = gpg(keys.agent.home, "--export-secret-keys", keys.agent.fingerprint)
    for content in (two, armoured, secret, b"", b"text", b"\x99\x00", b"\xff" * 40, b"x" * 2**21):
        with pytest.raises(InvalidInput):
            openpgp.read_key(content)

"""The generated keys are what they say, as GnuPG itself sees them."""

from __future__ import annotations

import subprocess
from datetime import timedelta

import pytest

from tests.keys import SESSION_START, Key, Keys, pin_for, public_key, sign_detached


def _words(tmp_path, key: Key, signature: bytes, payload: bytes = b"x\r\n") -> list[str]:
    for name, content in (("ring", key.public), ("sig", signature), ("text", payload)):
        (tmp_path / name).write_bytes(content)
    done = subprocess.run(
        ["gpgv", "--status-fd", "1", "--keyring", tmp_path / "ring", tmp_path / "sig",
         tmp_path / "text"],
        capture_output=True,
        text=True,
    )  # fmt: skip
    return [line.split()[1] for line in done.stdout.splitlines() if line.startswith("[GNUPG:]")]


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("owner", "GOODSIG"),
        ("alice", "GOODSIG"),
        ("impostor", "GOODSIG"),
        ("eternal", "GOODSIG"),
        ("with_subkey", "GOODSIG"),
        ("expired", "EXPKEYSIG"),
        ("revoked", "REVKEYSIG"),
    ],
)
def test_each_key_signs_as_its_name_says(keys: Keys, tmp_path, name: str, word: str) -> None:
    key = getattr(keys, name)
    when = key.created + timedelta(days=1)
    assert word in _words(tmp_path, key, sign_detached(key, b"x\r\n", at=when))


def test_signatures_can_be_weak_future_or_expired(keys: Keys, tmp_path) -> None:
    later = SESSION_START + timedelta(days=3)
    assert "GOODSIG" in _words(tmp_path, keys.alice, sign_detached(keys.alice, b"x\r\n", at=later))
    weak = sign_detached(keys.alice, b"x\r\n", hash="SHA1", armor=False)
    assert "GOODSIG" in _words(tmp_path, keys.alice, weak)
    ago = SESSION_START - timedelta(days=5)
    old = sign_detached(keys.alice, b"x\r\n", at=ago, expires="1d")
    assert "EXPSIG" in _words(tmp_path, keys.alice, old)


def test_a_pin_holds_the_binary_key_and_a_file_may_hold_the_armoured_one(keys: Keys) -> None:
    pin = pin_for(keys.alice)
    assert pin.addresses == {"alice@example.org"}
    assert public_key(keys.alice, armor=True).startswith(b"-----BEGIN PGP PUBLIC KEY BLOCK-----")
    assert pin.public_key == public_key(keys.alice)

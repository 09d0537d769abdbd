"""Encrypting: to the pinned keys that were asked for, and to nobody else, or not at all.

The first part is what every encrypter promises; the second what real GnuPG has to show for it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from guards.exceptions import EncryptionRefused, OpenPGPUnavailable
from guards.openpgp import Encrypter, KeyFacts, memory, packets
from guards.openpgp.encryption import GnuPGEncrypter
from guards.types import Pin
from tests.keys import SESSION_START, Key, Keys, decrypt, gpg, pin_for, public_key

PAYLOAD = b"Content-Type: text/plain\r\n\r\nWhat would leave: \xe2\x82\xac 40\r\n"
DAY = timedelta(days=1)


@dataclass
class Real:
    """Generated keys and GnuPG."""

    keys: Keys
    encrypter: Encrypter

    def pin(self, name: str) -> Pin:
        return pin_for(self._key(name))

    def opened(self, name: str, message: bytes) -> bytes | None:
        try:
            return decrypt(self._key(name), message)
        except AssertionError:
            return None

    def _key(self, name: str) -> Key:
        made: Key = getattr(self.keys, {"signer": "alice"}.get(name, name))
        return made


class Memory:
    """Made-up keys of the same names."""

    def __init__(self) -> None:
        self.encrypter = memory.MemoryEncrypter()
        later = SESSION_START + 370 * DAY
        self._keys: dict[str, KeyFacts] = {
            "reader": memory.make_key("Reader", expires_at=later, encrypts=True),
            "other_reader": memory.make_key("Other", expires_at=later, encrypts=True),
            "signer": memory.make_key("Alice", expires_at=later),
            "expired": memory.make_key(
                "Expired", expires_at=SESSION_START - 8 * DAY, encrypts=True
            ),
            "revoked": memory.make_key("Revoked", expires_at=later, revoked=True, encrypts=True),
        }

    def pin(self, name: str) -> Pin:
        key = self._keys[name]
        return Pin(frozenset({f"{name}@example.org"}), key.fingerprint, key.binary)

    def opened(self, name: str, message: bytes) -> bytes | None:
        return memory.decrypt(self._keys[name], message)


@pytest.fixture(params=["gnupg", "memory"])
def world(request: pytest.FixtureRequest) -> Real | Memory:
    if request.param == "memory":
        return Memory()
    return Real(request.getfixturevalue("keys"), GnuPGEncrypter())


def _refusal(world: Real | Memory, *pins: Pin, now: datetime | None = None) -> str:
    with pytest.raises(EncryptionRefused) as refused:
        world.encrypter.encrypt(payload=PAYLOAD, recipients=pins, now=now)
    assert refused.value.code == "encryption-refused"
    return refused.value.reason


def test_the_holder_of_the_pinned_key_reads_exactly_the_bytes(world: Real | Memory) -> None:
    message = world.encrypter.encrypt(payload=PAYLOAD, recipients=[world.pin("reader")])
    assert message.startswith(b"-----BEGIN PGP MESSAGE-----\n")
    assert world.opened("reader", message) == PAYLOAD


def test_nobody_else_reads_it(world: Real | Memory) -> None:
    message = world.encrypter.encrypt(payload=PAYLOAD, recipients=[world.pin("reader")])
    assert world.opened("other_reader", message) is None


def test_two_readers_read_the_same_message(world: Real | Memory) -> None:
    both = [world.pin("reader"), world.pin("other_reader"), world.pin("reader")]
    message = world.encrypter.encrypt(payload=PAYLOAD, recipients=both)
    assert world.opened("reader", message) == world.opened("other_reader", message) == PAYLOAD


def test_without_a_recipient_nothing_is_encrypted_to_a_default(world: Real | Memory) -> None:
    assert _refusal(world) == "no-recipient"


def test_more_recipients_than_a_message_has_are_refused(world: Real | Memory) -> None:
    many = [replace(world.pin("reader"), fingerprint=f"{number:040X}") for number in range(21)]
    assert _refusal(world, *many) == "too-many-recipients"


def test_an_expired_key_receives_nothing(world: Real | Memory) -> None:
    assert _refusal(world, world.pin("expired")) == "expired-key"


def test_a_revoked_key_receives_nothing(world: Real | Memory) -> None:
    assert _refusal(world, world.pin("revoked")) == "revoked-key"


def test_a_key_that_only_signs_receives_nothing(world: Real | Memory) -> None:
    assert _refusal(world, world.pin("signer")) == "no-encryption-key"


def test_one_unfit_key_among_good_ones_refuses_the_whole_message(world: Real | Memory) -> None:
    for unfit in ("signer", "revoked", "expired"):
        assert _refusal(world, world.pin("reader"), world.pin(unfit)).endswith("-key")


def test_a_key_that_is_not_the_pinned_one_is_refused(world: Real | Memory) -> None:
    swapped = replace(world.pin("other_reader"), fingerprint=world.pin("reader").fingerprint)
    assert _refusal(world, swapped) == "wrong-key"


def test_what_is_no_key_is_refused(world: Real | Memory) -> None:
    assert _refusal(world, replace(world.pin("reader"), public_key=b"junk")) == "unreadable-key"


def test_a_key_that_will_have_expired_by_then_is_refused(world: Real | Memory) -> None:
    assert _refusal(world, world.pin("reader"), now=SESSION_START + 900 * DAY) == "expired-key"


def test_two_keys_in_one_pin_are_refused(keys: Keys) -> None:
    both = public_key(keys.reader) + public_key(keys.other_reader)
    pin = replace(pin_for(keys.reader), public_key=both)
    with pytest.raises(EncryptionRefused) as refused:
        GnuPGEncrypter().encrypt(payload=PAYLOAD, recipients=[pin])
    assert refused.value.reason == "unreadable-key"


def test_a_subkey_past_its_end_is_not_encrypted_to(keys: Keys) -> None:
    key = keys.able_to_read(
        keys.make("Lapsed"), created=SESSION_START - 20 * DAY, expires=timedelta(days=2)
    )
    with pytest.raises(EncryptionRefused) as refused:
        GnuPGEncrypter().encrypt(payload=PAYLOAD, recipients=[pin_for(key)])
    assert refused.value.reason == "no-encryption-key"
    renewed = keys.able_to_read(key)
    message = GnuPGEncrypter().encrypt(payload=PAYLOAD, recipients=[pin_for(renewed)])
    assert decrypt(renewed, message) == PAYLOAD


def test_a_revoked_subkey_is_not_encrypted_to(keys: Keys) -> None:
    key = keys.able_to_read(keys.make("Half"))
    gpg(key.home, "--command-fd", "0", "--edit-key", key.fingerprint,
        stdin=b"key 1\nrevkey\ny\n0\n\ny\nsave\n")  # fmt: skip
    half = replace(key, public=gpg(key.home, "--export", key.fingerprint))
    with pytest.raises(EncryptionRefused) as refused:
        GnuPGEncrypter().encrypt(payload=PAYLOAD, recipients=[pin_for(half)])
    assert refused.value.reason == "no-encryption-key"


def test_only_the_pinned_keys_subkeys_hold_the_session_key(keys: Keys) -> None:
    message = GnuPGEncrypter().encrypt(
        payload=PAYLOAD, recipients=[pin_for(keys.reader), pin_for(keys.other_reader)]
    )
    readers = packets.recipients_of(packets.dearmor(message))
    known = {
        name[-16:]: owner.name
        for owner in (keys.reader, keys.other_reader)
        for name in packets.key_fingerprints(owner.public)
    }
    assert sorted(known[reader] for reader in readers) == ["Other", "Reader"]


def test_a_message_of_many_megabytes_is_encrypted_and_kept_whole(keys: Keys) -> None:
    large = os.urandom(6 * 1024 * 1024)
    message = GnuPGEncrypter().encrypt(payload=large, recipients=[pin_for(keys.reader)])
    assert decrypt(keys.reader, message) == large


def test_a_configuration_of_the_user_adds_no_reader(
    keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / ".gnupg"
    home.mkdir(mode=0o700)
    gpg(home, "--import", stdin=keys.other_reader.public)
    other = keys.other_reader.fingerprint
    (home / "gpg.conf").write_text(f"encrypt-to {other}\ndefault-recipient {other}\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GNUPGHOME", str(home))
    message = GnuPGEncrypter().encrypt(payload=PAYLOAD, recipients=[pin_for(keys.reader)])
    assert len(packets.recipients_of(packets.dearmor(message))) == 1
    with pytest.raises(AssertionError):
        decrypt(keys.other_reader, message)


def test_a_gpg_that_is_missing_lies_or_hangs_encrypts_nothing(
    keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = pin_for(keys.reader)
    GnuPGEncrypter().encrypt(payload=PAYLOAD, recipients=[pin])  # its listing is remembered
    honest = GnuPGEncrypter().encrypt(payload=PAYLOAD, recipients=[pin_for(keys.other_reader)])
    foreign = tmp_path / "foreign.asc"
    foreign.write_bytes(honest)
    for script, said in {
        "exit 2": "did not encrypt",
        "exit 0": "did not encrypt",
        _LIAR.format(foreign=foreign): "other keys",
        "exec sleep 60": "did not end",
    }.items():
        _fake_gpg(tmp_path, script, monkeypatch)
        with pytest.raises(OpenPGPUnavailable, match=said):
            GnuPGEncrypter(timeout=0.5).encrypt(payload=PAYLOAD, recipients=[pin])
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(OpenPGPUnavailable, match="not installed"):
        GnuPGEncrypter().encrypt(payload=PAYLOAD, recipients=[pin])


#: Claims to have encrypted, and hands out a message for somebody else.
_LIAR = """
while [ "$1" != --status-fd ]; do shift; done
echo '[GNUPG:] END_ENCRYPTION' >/dev/fd/$2
cat {foreign}
"""

_REAL = "/usr/bin/gpg"


def _fake_gpg(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `gpg` that lists keys like the real one and does `script` when it is to encrypt."""
    bin_folder = folder / "bin"
    bin_folder.mkdir(exist_ok=True)
    (bin_folder / "gpg").write_text(
        f'#!/bin/sh\ncase "$*" in *--list-keys*) exec {_REAL} "$@";; esac\n{script}\n'
    )
    (bin_folder / "gpg").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}:/usr/bin:/bin")


def test_nothing_but_session_keys_and_protected_data_is_a_message() -> None:
    with pytest.raises(packets.MalformedPackets):
        packets.recipients_of(b"")
    with pytest.raises(packets.MalformedPackets):
        packets.recipients_of(b"\xa6\x00\x01x")  # unprotected data
    assert packets.recipients_of(b"\xd2\x02\x01x") == ()

"""Generated OpenPGP keys for every test: real GnuPG, one short home per session, made on demand.

Loaded as a plugin (`-p tests.keys`), so any test may ask for the `keys` fixture:

    def test_x(keys):
        signature = sign_detached(keys.alice, b"text\\r\\n")
        pin = pin_for(keys.alice, "alice@example.org")

Keys are made 30 days in the past, so that a signature may be dated anywhere in the last month.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from pathlib import Path

import pytest

from guards.types import Pin

#: The moment the session began; dates of the generated keys are relative to it.
SESSION_START = datetime.now(UTC).replace(microsecond=0)


@dataclass(frozen=True)
class Key:
    """A generated key: where its secret lives, and its public part as GnuPG exported it.

    `signing_fingerprint` differs from `fingerprint` where a subkey signs. `public` is binary.
    """

    name: str
    email: str
    fingerprint: str
    home: Path
    public: bytes = field(repr=False)
    created: datetime
    expires: datetime | None
    signing_fingerprint: str = ""

    @property
    def key_id(self) -> str:
        return self.fingerprint[-16:]


def gpg(home: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    """Run gpg in `home` and give back its output; a failure shows gpg's own words."""
    done = subprocess.run(
        ["gpg", "--batch", "--no-tty", "--yes", "--quiet", "--ignore-time-conflict",
         "--trust-model", "always", "--pinentry-mode", "loopback", "--passphrase", "", *arguments],
        input=stdin,
        capture_output=True,
        env={"PATH": os.environ["PATH"], "GNUPGHOME": str(home), "LC_ALL": "C"},
        timeout=60,
    )  # fmt: skip
    if done.returncode:
        raise AssertionError(f"gpg {arguments}: {done.stderr.decode(errors='replace')}")
    return done.stdout


def new_home(parent: Path | None = None) -> Path:
    """A GnuPG home with a short path (the agent's socket may have 108 bytes at most)."""
    return Path(tempfile.mkdtemp(prefix="csk-", dir=parent or "/tmp"))


def remove_home(home: Path) -> None:
    """Stop the home's agent and delete it."""
    subprocess.run(
        ["gpgconf", "--kill", "all"],
        env={"PATH": os.environ["PATH"], "GNUPGHOME": str(home)},
        capture_output=True,
    )
    shutil.rmtree(home, ignore_errors=True)


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y%m%dT%H%M%S")


def _listed_all(home: Path) -> list[list[str]]:
    listing = gpg(home, "--with-colons", "--fingerprint", "--fingerprint", "--list-keys")
    return [line.split(":") for line in listing.decode().splitlines()]


def sign_detached(
    key: Key,
    payload: bytes,
    *,
    at: datetime | None = None,
    hash: str = "SHA256",
    armor: bool = True,
    text_mode: bool = False,
    expires: str | None = None,
    notation: str | None = None,
    signer: str | None = None,
) -> bytes:
    """A detached signature over exactly `payload` (give it CRLF lines for PGP/MIME).

    `at` dates the signature (past or future); `hash` may be SHA1; `expires` is a signature expiry
    such as `1d`; `notation` is `name@domain=value`; `text_mode` makes a class 01 signature.
    """
    options = ["--digest-algo", hash, "--local-user", signer or (key.signing_fingerprint + "!")]
    if armor:
        options.append("--armor")
    if at is not None:
        options += ["--faked-system-time", _stamp(at) + "!"]
    if expires is not None:
        options += ["--default-sig-expire", expires]
    if notation is not None:
        options += ["--sig-notation", notation]
    if text_mode:
        options.append("--textmode")
    return gpg(key.home, *options, "--detach-sign", "--output", "-", stdin=payload)


def decrypt(key: Key, message: bytes) -> bytes:
    """What a message says to the holder of `key`; AssertionError where it is for others."""
    return gpg(key.home, "--decrypt", stdin=message)


@cache
def public_key(key: Key, *, armor: bool = False) -> bytes:
    """The public key, binary (as a `Pin` holds it) or armoured (as a file has it, made once)."""
    if not armor:
        return key.public
    home = new_home()
    try:
        gpg(home, "--import", stdin=key.public)
        return gpg(home, "--armor", "--export", key.fingerprint)
    finally:
        remove_home(home)


def pin_for(key: Key, *addresses: str, contact: str = "") -> Pin:
    """The pin of `key` to a contact with these addresses (default: the key's own)."""
    return Pin(
        addresses=frozenset(address.lower() for address in addresses or (key.email,)),
        fingerprint=key.fingerprint,
        public_key=key.public,
        contact=contact or key.name,
    )


class Keys:
    """The session's keys. Each is made when first asked for."""

    def __init__(self) -> None:
        self.root = new_home()
        self.home = new_home(self.root)
        self._homes = [self.home]
        self._process = os.getpid()
        atexit.register(self.close)

    def make(
        self,
        name: str,
        email: str | None = None,
        *,
        created: datetime | None = None,
        expires: timedelta | None = timedelta(days=400),
        algorithm: str = "ed25519",
        home: Path | None = None,
    ) -> Key:
        """Generate a key `Name <email>` (UIDs may repeat). `expires=None`: it never does."""
        home = home or self.separate_home()
        email = email or f"{name.lower()}@example.org"
        created = created or SESSION_START - timedelta(days=30)
        days = "0" if expires is None else f"seconds={int(expires.total_seconds())}"
        before = {row[9] for row in _listed_all(home) if row[0] == "fpr"}
        gpg(home, "--faked-system-time", _stamp(created) + "!", "--quick-generate-key",
            f"{name} <{email}>", algorithm, "sign", days)  # fmt: skip
        made = [row[9] for row in _listed_all(home) if row[0] == "fpr" and row[9] not in before]
        fingerprint = made[0]
        return Key(
            name=name,
            email=email,
            fingerprint=fingerprint,
            home=home,
            public=gpg(home, "--export", fingerprint),
            created=created,
            expires=None if expires is None else created + expires,
            signing_fingerprint=fingerprint,
        )

    def able_to_read(
        self, key: Key, *, created: datetime | None = None, expires: timedelta | None = None
    ) -> Key:
        """The same key with one more subkey, to encrypt to; `expires` from when it is made."""
        moment = created or key.created
        ends = "0" if expires is None else f"seconds={int(expires.total_seconds())}"
        gpg(key.home, "--faked-system-time", _stamp(moment) + "!", "--quick-add-key",
            key.fingerprint, "cv25519", "encr", ends)  # fmt: skip
        return replace(key, public=gpg(key.home, "--export", key.fingerprint))

    def separate_home(self) -> Path:
        """One more home with a short path, removed with the session."""
        home = new_home(self.root)
        self._homes.append(home)
        return home

    @cached_property
    def owner(self) -> Key:
        return self.make("Owner", home=self.home)

    @cached_property
    def alice(self) -> Key:
        return self.make("Alice", home=self.home)

    @cached_property
    def bob(self) -> Key:
        return self.make("Bob", home=self.home)

    @cached_property
    def agent(self) -> Key:
        """An agent's own key, to sign replies with; alone in its home, without a passphrase."""
        return self.make("Agent")

    @cached_property
    def mallory(self) -> Key:
        return self.make("Mallory", home=self.home)

    @cached_property
    def impostor(self) -> Key:
        """Another key with exactly Alice's UID."""
        return self.make("Alice")

    @cached_property
    def eternal(self) -> Key:
        """A key without an expiry date."""
        return self.make("Eternal", expires=None, home=self.home)

    @cached_property
    def expired(self) -> Key:
        """Made ten days ago, valid for two: sign with `at=keys.expired.created + 1 day`."""
        return self.make(
            "Expired", created=SESSION_START - timedelta(days=10), expires=timedelta(days=2),
            home=self.home,
        )  # fmt: skip

    @cached_property
    def revoked(self) -> Key:
        """Its secret still signs here; its public part carries the revocation."""
        key = self.make("Revoked")
        elsewhere = self.separate_home()
        stored = (key.home / "openpgp-revocs.d" / f"{key.fingerprint}.rev").read_text()
        certificate = stored.replace(":-----BEGIN", "-----BEGIN").encode()
        gpg(elsewhere, "--trust-model", "pgp", "--import", stdin=key.public)
        gpg(elsewhere, "--trust-model", "pgp", "--import", stdin=certificate)
        return replace(key, public=gpg(elsewhere, "--export", key.fingerprint))

    @cached_property
    def reader(self) -> Key:
        """A person who signs and reads: a primary that signs, a subkey to encrypt to."""
        return self.able_to_read(self.make("Reader"))

    @cached_property
    def other_reader(self) -> Key:
        """Somebody else who reads."""
        return self.able_to_read(self.make("Other"))

    @cached_property
    def with_subkey(self) -> Key:
        """A primary that certifies and a subkey that signs; another, expired subkey beside it."""
        home = self.separate_home()
        created = SESSION_START - timedelta(days=30)
        faked = ("--faked-system-time", _stamp(created) + "!")
        gpg(home, *faked, "--quick-generate-key", "Carol <carol@example.org>", "ed25519", "cert",
            "400d")  # fmt: skip
        primary = next(row[9] for row in _listed_all(home) if row[0] == "fpr")
        gpg(home, *faked, "--quick-add-key", primary, "ed25519", "sign", "2d")
        gpg(home, *faked, "--quick-add-key", primary, "ed25519", "sign", "300d")
        fingerprints = [row[9] for row in _listed_all(home) if row[0] == "fpr"]
        return Key(
            name="Carol",
            email="carol@example.org",
            fingerprint=primary,
            home=home,
            public=gpg(home, "--export", primary),
            created=created,
            expires=created + timedelta(days=400),
            signing_fingerprint=fingerprints[-1],
        )

    def close(self) -> None:
        """Stop the agents and remove the homes; at the end of the process at the latest."""
        if os.getpid() != self._process:
            return  # a fork of the test run does not own them
        while self._homes:
            remove_home(self._homes.pop())
        shutil.rmtree(self.root, ignore_errors=True)


@pytest.fixture(scope="session")
def keys() -> Iterator[Keys]:
    """The session's generated keys."""
    made = Keys()
    yield made
    made.close()

"""Signing with an identity's own key, in its own home (DES-020, DES-022)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from guards import secrets
from guards.exceptions import OpenPGPUnavailable, SigningRefused
from guards.openpgp.base import HASH_NAMES, Signature
from guards.openpgp.invocation import Invocation, invoke
from guards.openpgp.keys import secret_key_in

#: The agent's socket lies in the home and may have 108 bytes in all.
_LONGEST_HOME = 80

_SIGN = (
    "--batch", "--no-tty", "--no-options", "--yes", "--status-fd", "{status:fd}",
    "--pinentry-mode", "loopback", "--passphrase-fd", "{passphrase:fd}", "--no-auto-key-locate",
    "--personal-digest-preferences", "SHA512 SHA384 SHA256", "--armor", "--output", "-",
)  # fmt: skip


def sign(*, home: str | Path, fingerprint: str, passphrase_ref: str, payload: bytes) -> Signature:
    """A detached signature over exactly `payload`, by the key pair `fingerprint` in `home`.

    SigningRefused, before anything is signed, for a key without an expiry date, past it, or
    revoked. The passphrase (`passphrase_ref` is a secret reference; empty for a key without one)
    reaches GnuPG through a file descriptor. SecretUnavailable, OpenPGPUnavailable.
    """
    with _short_home(Path(home)) as short:
        refuse_unfit(short, fingerprint, datetime.now(UTC))
        passphrase = secrets.resolve(passphrase_ref).reveal() if passphrase_ref else ""
        files = {"passphrase": passphrase.encode() + b"\n", "payload": payload}
        done = invoke(
            "gpg",
            (*_SIGN, "--local-user", fingerprint, "--detach-sign", "{payload}"),
            files,
            environment={"GNUPGHOME": short},
        )
    return _read_signature(done, fingerprint)


def refuse_unfit(home: str, fingerprint: str, now: datetime) -> None:
    """SigningRefused unless the key may sign at `now` (DES-020)."""
    key = secret_key_in(home, fingerprint)
    if key.expires_at is None:
        raise SigningRefused(
            f"the key {fingerprint} has no expiry date, so it must not sign: set one with "
            f"`gpg --quick-set-expire {fingerprint} 1y`"
        )
    if key.expires_at <= now:
        raise SigningRefused(
            f"the key {fingerprint} expired on {key.expires_at:%Y-%m-%d}, so it must not sign"
        )
    if key.revoked:
        raise SigningRefused(f"the key {fingerprint} is revoked, so it must not sign")


def _read_signature(done: Invocation, fingerprint: str) -> Signature:
    """SIG_CREATED type pkalgo hashalgo class timestamp fingerprint, exactly once."""
    lines = [line.split() for line in done.status.decode("utf-8", "replace").splitlines()]
    created = [line for line in lines if line[1:2] == ["SIG_CREATED"]]
    if done.exit_code != 0 or len(created) != 1 or not done.output:
        words = " ".join(line[1] for line in lines if len(line) > 1)
        raise OpenPGPUnavailable(f"GnuPG did not sign with {fingerprint} ({words or 'no status'})")
    hash_name = HASH_NAMES[int(created[0][4])]
    return Signature(armored=done.output, micalg=f"pgp-{hash_name.lower()}")


@contextmanager
def _short_home(home: Path) -> Iterator[str]:
    """`home`, or a short name for it while it is used, since sockets have short names."""
    if not home.is_dir():
        raise OpenPGPUnavailable(f"the GnuPG home {home} is not there")
    path = str(home.resolve())
    if len(os.fsencode(path)) <= _LONGEST_HOME:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="cs-", dir="/tmp") as folder:
        alias = Path(folder) / "h"
        alias.symlink_to(path)
        yield str(alias)

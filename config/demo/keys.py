"""Key pairs for the demo's people, made by GnuPG in short-lived homes."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from guards import openpgp, process
from guards.exceptions import OpenPGPUnavailable

_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A key pair in its GnuPG home; `public_key` is armoured."""

    home: Path
    fingerprint: str
    public_key: bytes

    def sign(self, payload: bytes) -> openpgp.Signature:
        """A detached signature over exactly these bytes; no agent stays behind."""
        signature = openpgp.sign(
            home=self.home, fingerprint=self.fingerprint, passphrase_ref="", payload=payload
        )
        with _short_name(self.home) as short:
            _stop_agent(short)
        return signature


def key_pair(home: Path, *, name: str, address: str) -> KeyPair:
    """The key pair in this home; made there (ed25519, one year, no passphrase) when it is empty."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _short_name(home) as short:
        if not (home / "pubring.kbx").exists():
            _gpg(
                short,
                *("--passphrase", "", "--quick-generate-key"),
                *(f"{name} <{address}>", "ed25519", "sign", "1y"),
            )
        public_key = _gpg(short, "--armor", "--export")
        _stop_agent(short)
    return KeyPair(home, openpgp.read_key(public_key).fingerprint, public_key)


def _gpg(home: str, *arguments: str) -> bytes:
    done = process.run(
        ["gpg", "--homedir", home, "--batch", "--no-tty", "--quiet", *arguments],
        timeout=_TIMEOUT,
        vouched=True,
        has_daemons=True,  # its agent, which `_stop_agent` stops
    )
    if done.exit_code != 0:
        raise OpenPGPUnavailable(
            f"gpg {arguments[-1]} failed: {done.stderr.decode('utf-8', 'replace')[-300:]}"
        )
    return done.stdout


def _stop_agent(home: str) -> None:
    with contextlib.suppress(OpenPGPUnavailable):
        process.run(["gpgconf", "--homedir", home, "--kill", "all"], timeout=_TIMEOUT, vouched=True)


@contextmanager
def _short_name(home: Path) -> Iterator[str]:
    """A short symbolic link to the home: the agent's socket lies in it and may have 108 bytes."""
    with tempfile.TemporaryDirectory(prefix="cs-", dir="/tmp") as directory:
        link = Path(directory) / "h"
        link.symlink_to(home.resolve())
        yield os.fspath(link)

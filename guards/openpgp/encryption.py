"""Encrypting to pinned keys, and to nobody else.

GnuPG sees exactly the keys that were asked for, as files without a name: no home, no keyring of
ours, no default recipient, no key to be looked up, and so nothing that it could fall back to. A key
that must not receive anything is refused before GnuPG is started, and what GnuPG wrote is read
again: each of its session keys must be for one of the keys asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from guards.exceptions import EncryptionRefused, InvalidInput, OpenPGPUnavailable
from guards.openpgp.base import TIMEOUT, EncryptionRefusal
from guards.openpgp.invocation import NOWHERE, Invocation, invoke
from guards.openpgp.keys import encryption_keys, read_key
from guards.openpgp.packets import MalformedPackets, dearmor, recipients_of
from guards.types import Pin

#: A message to more keys than this is none that a person approved.
MAX_RECIPIENTS = 20

#: Armour makes a message a third larger; files of a message may have 25 MiB.
_MAX_OUTPUT_BYTES = 64 * 1024 * 1024

_ENCRYPT = (
    "--batch", "--no-tty", "--no-options", "--homedir", NOWHERE, "--no-default-keyring",
    "--lock-never", "--no-autostart", "--disable-dirmngr", "--no-auto-key-locate",
    "--no-auto-key-retrieve", "--no-auto-check-trustdb", "--trust-model", "always",
    "--no-default-recipient", "--no-encrypt-to", "--no-throw-keyids", "--status-fd", "{status:fd}",
    "--keyring", "{keyring}", "--compress-algo", "none", "--set-filename", "", "--armor",
    "--output", "-",
)  # fmt: skip


class GnuPGEncrypter:
    """Encrypts with the installed GnuPG. `timeout` is in seconds."""

    def __init__(self, *, timeout: float = TIMEOUT) -> None:
        self._timeout = timeout

    def encrypt(
        self, *, payload: bytes, recipients: Sequence[Pin], now: datetime | None = None
    ) -> bytes:
        """See `Encrypter.encrypt`."""
        moment = now or datetime.now(UTC)
        chosen = distinct(recipients)
        allowed = {pin.fingerprint: _usable(pin, moment) for pin in chosen}
        named = [word for pin in chosen for word in ("--recipient", pin.fingerprint)]
        done = invoke(
            "gpg",
            (*_ENCRYPT, *named, "--encrypt", "{payload}"),
            {"keyring": b"".join(key for key, _ in allowed.values()), "payload": payload},
            timeout=self._timeout,
            most=_MAX_OUTPUT_BYTES,
        )
        _require_recipients(done, {name: ids for name, (_, ids) in allowed.items()})
        return done.output


def distinct(recipients: Sequence[Pin]) -> list[Pin]:
    """Each key once, in order; EncryptionRefused for none, and for too many."""
    found = list({pin.fingerprint: pin for pin in recipients}.values())
    if not found:
        raise EncryptionRefused(
            EncryptionRefusal.NO_RECIPIENT, "there is no key to encrypt to, so nothing may leave"
        )
    if len(found) > MAX_RECIPIENTS:
        raise EncryptionRefused(
            EncryptionRefusal.TOO_MANY_RECIPIENTS,
            f"a message is encrypted to {MAX_RECIPIENTS} keys at most, not to {len(found)}",
        )
    return found


def _usable(pin: Pin, now: datetime) -> tuple[bytes, frozenset[str]]:
    """The key's own bytes, and the ids of its parts that may decrypt; EncryptionRefused."""
    try:
        key = read_key(pin.public_key)
    except InvalidInput as error:
        raise EncryptionRefused(EncryptionRefusal.UNREADABLE_KEY, error.detail) from error
    if key.fingerprint != pin.fingerprint:
        raise EncryptionRefused(
            EncryptionRefusal.WRONG_KEY,
            f"{pin.fingerprint} is pinned, but {key.fingerprint} lies there",
        )
    refuse_unfit(pin.fingerprint, revoked=key.revoked, expires_at=key.expires_at, now=now)
    parts = frozenset(encryption_keys(key.binary, now=now))
    if not parts:
        raise EncryptionRefused(
            EncryptionRefusal.NO_ENCRYPTION_KEY,
            f"the key {pin.fingerprint} has no valid part to encrypt to",
        )
    return key.binary, parts


def refuse_unfit(
    fingerprint: str, *, revoked: bool, expires_at: datetime | None, now: datetime
) -> None:
    """EncryptionRefused for a key that is revoked or past its end."""
    if revoked:
        raise EncryptionRefused(EncryptionRefusal.REVOKED_KEY, f"the key {fingerprint} is revoked")
    if expires_at is not None and expires_at <= now:
        raise EncryptionRefused(
            EncryptionRefusal.EXPIRED_KEY, f"the key {fingerprint} expired on {expires_at:%F}"
        )


def _require_recipients(done: Invocation, allowed: Mapping[str, frozenset[str]]) -> None:
    """OpenPGPUnavailable unless exactly the keys that were asked for can read what came out."""
    words = [line.split()[1:2] for line in done.status.decode("utf-8", "replace").splitlines()]
    said = [word[0] for word in words if word]
    if done.exit_code != 0 or "END_ENCRYPTION" not in said or "INV_RECP" in said:
        raise OpenPGPUnavailable(f"GnuPG did not encrypt ({' '.join(said) or 'no status'})")
    try:
        readers = recipients_of(dearmor(done.output))
    except MalformedPackets as error:
        raise OpenPGPUnavailable(f"GnuPG wrote no encrypted message: {error}") from error
    served = [name for reader in readers for name, ids in allowed.items() if reader in ids]
    if len(readers) != len(allowed) or set(served) != set(allowed):
        raise OpenPGPUnavailable("GnuPG encrypted to other keys than it was asked to")

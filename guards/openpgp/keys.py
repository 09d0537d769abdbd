"""Reading public keys, and the state of a key pair in a GnuPG home.

The listing is GnuPG's; python-gnupg's `ScanKeys` knows its columns. The process is ours, because
python-gnupg sets no time limit.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from gnupg import ScanKeys

from guards.exceptions import InvalidInput, OpenPGPUnavailable
from guards.openpgp.base import MAX_KEY_BYTES, KeyFacts
from guards.openpgp.invocation import NOWHERE, invoke
from guards.openpgp.packets import MalformedPackets, dearmor, key_fingerprints, without_trust

#: The key itself is the keyring, so nothing is imported. Importing a revoked key wants a trustdb.
_SHOW = (
    "--batch", "--no-tty", "--no-options", "--homedir", NOWHERE, "--lock-never", "--no-autostart",
    "--no-default-keyring", "--keyring", "{key}", "--no-sig-cache", "--trust-model", "always",
    "--with-colons", "--fixed-list-mode", "--with-fingerprint", "--list-keys",
)  # fmt: skip

#: Validities of a key or subkey to which nothing is sent: revoked, expired, invalid, disabled.
_SPENT = frozenset("reid")


def read_key(content: bytes) -> KeyFacts:
    """The facts of a public key, armoured or binary.

    InvalidInput unless it holds exactly one primary key, and no secret one; OpenPGPUnavailable when
    GnuPG cannot be asked. Nothing is imported anywhere.
    """
    if len(content) > MAX_KEY_BYTES:
        raise InvalidInput(f"a key of {len(content)} bytes is not read", field="key")
    try:
        binary = dearmor(content)
        if not binary:
            raise MalformedPackets("there is no OpenPGP key in it")
        fingerprint = key_fingerprints(binary)[0]
        binary = without_trust(binary)
    except MalformedPackets as error:
        raise InvalidInput(f"this is not one public key: {error}", field="key") from error
    return _list_key(binary, fingerprint)


@lru_cache(maxsize=256)
def _list_key(binary: bytes, fingerprint: str) -> KeyFacts:
    """The same bytes have the same facts for ever: expiry is a date, not a state."""
    done = invoke("gpg", _SHOW, {"key": binary})
    listed = read_listing(done.output)
    if len(listed) != 1 or listed[0]["fingerprint"] != fingerprint:
        raise InvalidInput("GnuPG cannot use this key: it has no valid self-signature", field="key")
    return facts_of(listed[0], binary)


def encryption_keys(binary: bytes, *, now: datetime) -> list[str]:
    """The ids (16 hex) of the parts of a public key that may receive at `now`, as GnuPG lists them.

    The primary's own state is not looked at: see `read_key`.
    """
    found = []
    for listed in read_listing(invoke("gpg", _SHOW, {"key": binary}).output):
        for part in (listed, *listed.get("subkey_info", {}).values()):
            ends = _moment(part["expires"])
            is_over = ends is not None and ends <= now
            if "e" in part["cap"] and part["trust"] not in _SPENT and not is_over:
                found.append(part["keyid"].upper())
    return found


def read_listing(output: bytes) -> list[dict[str, Any]]:
    """The keys of a `--with-colons` listing, as python-gnupg names their columns."""
    keys = ScanKeys(_Encoding)
    for line in output.decode("utf-8", "replace").splitlines():
        fields = line.split(":")
        if fields[0] in ("pub", "sec", "uid", "sub", "ssb", "fpr") and len(fields) > 9:
            getattr(keys, fields[0])(fields)
    return list(keys)


class _Encoding:
    """What `ScanKeys` asks of a gpg object."""

    encoding = "utf-8"
    decode_errors = "replace"
    check_fingerprint_collisions = False


def facts_of(listed: dict[str, Any], binary: bytes = b"") -> KeyFacts:
    """A listed key's facts."""
    return KeyFacts(
        fingerprint=listed["fingerprint"].upper(),
        uid=next(iter(listed["uids"]), ""),
        expires_at=_moment(listed["expires"]),
        binary=binary,
        created_at=_moment(listed["date"]),
        revoked=listed["trust"] == "r",
    )


def secret_key_in(home: str, fingerprint: str) -> KeyFacts:
    """The key pair `fingerprint` of a GnuPG home; OpenPGPUnavailable when it is not there."""
    done = invoke(
        "gpg",
        ("--batch", "--no-tty", "--no-options", "--with-colons", "--fixed-list-mode",
         "--with-fingerprint", "--list-secret-keys", fingerprint),
        {},
        environment={"GNUPGHOME": home},
    )  # fmt: skip
    for listed in read_listing(done.output):
        if listed["fingerprint"] == fingerprint:
            return facts_of(listed)
    raise OpenPGPUnavailable(f"there is no secret key {fingerprint} in {home}")


def _moment(text: str) -> datetime | None:
    return datetime.fromtimestamp(int(text), UTC) if text and text != "0" else None

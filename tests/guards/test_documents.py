"""Signed documents: only the owner's signature counts, and the owner is not in the database."""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from guards import documents
from guards.exceptions import (
    DocumentCheckFailed,
    DocumentNotSigned,
    InvalidInput,
    NoOwnerKey,
    OwnerKeyInvalid,
)
from tests.keys import Key, Keys, public_key, sign_detached

DOCUMENT: dict[str, Any] = {
    "schema": "command/1",
    "name": "weekly",
    "serial": 1,
    "runner": "cli",
    "binary": "jq",
    "args": {"count": {"type": "integer", "required": True}},
}


@pytest.fixture
def own(keys: Keys, tmp_path: Path, settings):
    """Configure the owner by fingerprint; gives a function that makes another key the owner."""
    file = tmp_path / "owner.asc"
    settings.OWNER_FINGERPRINT = settings.OWNER_HANDLE = ""
    settings.OWNER_KEY_FILE = str(file)

    def configure(key: Key) -> Path:
        file.write_bytes(public_key(key, armor=True))
        settings.OWNER_FINGERPRINT = key.fingerprint
        return file

    configure(keys.owner)
    return configure


def _sign(key: Key, document: dict[str, Any] = DOCUMENT, **options: Any) -> str:
    return sign_detached(key, documents.canonical(document), **options).decode()


def _reason(document: dict[str, Any], signature: str, **options: Any) -> str:
    with pytest.raises(DocumentNotSigned) as caught:
        documents.verify_document(document, signature, **options)
    assert caught.value.rule == caught.value.reason
    return caught.value.reason


def test_the_owners_signature_counts_whatever_the_order_of_the_fields(own, keys: Keys) -> None:
    signature = _sign(keys.owner)
    turned = dict(reversed(DOCUMENT.items()))
    documents.verify_document(turned, signature)
    documents.verify_document({**DOCUMENT, "signature": signature}, signature)


@pytest.mark.fault("sister-4")
def test_each_way_of_not_being_signed_by_the_owner_has_its_reason(own, keys: Keys) -> None:
    good = _sign(keys.owner)
    assert _reason(DOCUMENT, "") == "missing"
    assert _reason(DOCUMENT, " \n") == "missing"
    assert _reason(DOCUMENT, "any signature") == "invalid"
    assert _reason(DOCUMENT, _sign(keys.mallory)) == "wrong-key"
    assert _reason(DOCUMENT, good + good) == "invalid"
    assert _reason(DOCUMENT, _sign(keys.owner, hash="SHA1")) == "invalid"
    ahead = datetime.now(UTC) + timedelta(days=2)
    assert _reason(DOCUMENT, _sign(keys.owner, at=ahead)) == "invalid"


@pytest.mark.fault("W20")
@pytest.mark.parametrize("name", sorted(DOCUMENT))
def test_a_change_of_any_field_after_signing_is_found(own, keys: Keys, name: str) -> None:
    signature = _sign(keys.owner)
    changed = {**DOCUMENT, name: "other"}
    without = {key: value for key, value in DOCUMENT.items() if key != name}
    assert _reason(changed, signature) == "invalid"
    assert _reason(without, signature) == "invalid"
    assert _reason({**DOCUMENT, "extra": None}, signature) == "invalid"


@pytest.mark.fault("W9")
def test_the_owner_may_sign_with_a_subkey(own, keys: Keys) -> None:
    own(keys.with_subkey)
    documents.verify_document(DOCUMENT, _sign(keys.with_subkey))


@pytest.mark.fault("W8")
def test_a_key_with_the_owners_name_is_the_wrong_key(own, keys: Keys) -> None:
    own(keys.alice)
    assert _reason(DOCUMENT, _sign(keys.impostor)) == "wrong-key"


@pytest.mark.fault("sister-5")
def test_without_an_owner_nothing_counts_quietly(
    own, keys: Keys, settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.OWNER_FINGERPRINT = ""
    with caplog.at_level(logging.DEBUG), pytest.raises(NoOwnerKey):
        documents.verify_document(DOCUMENT, _sign(keys.owner))
    assert {record.levelname for record in caplog.records} == {"INFO"}


def _break(settings, file: Path, keys: Keys, how: str) -> None:
    if how == "both":
        settings.OWNER_HANDLE = "owner"
    elif how == "short":
        settings.OWNER_FINGERPRINT = keys.owner.fingerprint[-16:]
    elif how == "no file setting":
        settings.OWNER_KEY_FILE = ""
    elif how == "no file":
        file.unlink()
    elif how == "another key":
        file.write_bytes(public_key(keys.mallory))
    elif how == "two keys":
        file.write_bytes(public_key(keys.owner) + public_key(keys.mallory))
    elif how == "junk":
        file.write_bytes(b"not a key")
    elif how == "too large":
        file.write_bytes(b"x" * (2 * 1024 * 1024))


@pytest.mark.fault("W8", "sister-38")
@pytest.mark.parametrize(
    "how",
    ["both", "short", "no file setting", "no file", "another key", "two keys", "junk", "too large"],
)
def test_an_owner_that_is_not_exactly_one_key_is_loud_and_nothing_counts(
    own, keys: Keys, settings, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    _break(settings, Path(settings.OWNER_KEY_FILE), keys, how)
    with pytest.raises(OwnerKeyInvalid):
        documents.verify_document(DOCUMENT, _sign(keys.owner))
    assert {record.levelname for record in caplog.records} == {"ERROR"}


def test_an_owner_without_an_expiry_date_or_revoked_is_loud(own, keys: Keys) -> None:
    own(keys.eternal)
    with pytest.raises(OwnerKeyInvalid, match="no expiry"):
        documents.verify_document(DOCUMENT, _sign(keys.eternal))
    own(keys.revoked)
    with pytest.raises(OwnerKeyInvalid, match="revoked"):
        documents.verify_document(DOCUMENT, _sign(keys.revoked))


@pytest.mark.fault("pgp-verify-35", "sister-3")
def test_an_expired_owner_is_loud_and_its_documents_say_expired_key(
    own, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    own(keys.expired)
    signature = _sign(keys.expired, at=keys.expired.created + timedelta(days=1))
    with pytest.raises(OwnerKeyInvalid, match="expired on"):
        documents.owner_key()
    assert _reason(DOCUMENT, signature) == "expired-key"
    assert {record.levelname for record in caplog.records} == {"ERROR"}


@pytest.mark.invariant(13)
@pytest.mark.fault("pgp-verify-35")
def test_a_key_that_expires_stops_a_worker_that_runs(own, keys: Keys) -> None:
    """The same process, the same file: only time passes (invariant 13)."""
    owner = keys.make("Brief", expires=timedelta(days=40))
    own(owner)
    signature = _sign(owner)
    documents.verify_document(DOCUMENT, signature)
    assert owner.expires is not None
    before, after = owner.expires - timedelta(seconds=9), owner.expires + timedelta(seconds=9)
    documents.verify_document(DOCUMENT, signature, now=before)
    assert _reason(DOCUMENT, signature, now=after) == "expired-key"


@pytest.mark.fault("W20")
def test_a_key_file_that_is_replaced_or_removed_counts_at_once(own, keys: Keys) -> None:
    signature = _sign(keys.owner)
    documents.verify_document(DOCUMENT, signature)
    file = own(keys.bob)
    assert _reason(DOCUMENT, signature) == "wrong-key"
    documents.verify_document(DOCUMENT, _sign(keys.bob))
    file.unlink()
    with pytest.raises(OwnerKeyInvalid):
        documents.verify_document(DOCUMENT, _sign(keys.bob))


def test_the_database_is_never_asked_who_the_owner_is(own, keys: Keys) -> None:
    """No database mark on this test: pytest-django fails any query."""
    assert documents.owner_key().fingerprint == keys.owner.fingerprint
    assert documents.owner_key().source == "OWNER_FINGERPRINT"


@pytest.fixture
def ethos(own, keys: Keys, tmp_path: Path, settings) -> Path:
    """The owner named by a handle that ethos files resolve."""
    own(keys.owner)
    settings.OWNER_FINGERPRINT = ""
    settings.OWNER_HANDLE = "sam"
    settings.ETHOS_DIR = str(tmp_path / "ethos")
    identities = tmp_path / "ethos" / "identities"
    (identities / "sam.ext").mkdir(parents=True)
    (identities / "sam.yaml").write_text("handle: sam\nname: Sam\nemail: sam@example.org\n")
    extension = identities / "sam.ext" / "beadle.yaml"
    extension.write_text(f"gpg_key_id: '{keys.owner.fingerprint.lower()}'\n")
    return identities


def test_a_handle_resolves_through_ethos_files(ethos: Path, keys: Keys) -> None:
    owner = documents.owner_key()
    assert (owner.fingerprint, owner.source) == (keys.owner.fingerprint, "OWNER_HANDLE")
    documents.verify_document(DOCUMENT, _sign(keys.owner))


@pytest.mark.fault("sister-38", "sister-41")
@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("sam.yaml", None),
        ("sam.yaml", "handle: other\n"),
        ("sam.yaml", "- a list\n"),
        ("sam.yaml", "{broken"),
        ("sam.yaml", "x: !!python/object/apply:os.system [id]\n"),
        ("sam.ext/beadle.yaml", None),
        ("sam.ext/beadle.yaml", "gpg_key: 0123\n"),
        ("sam.ext/beadle.yaml", "gpg_key_id: 0123456789ABCDEF\n"),
        ("sam.ext/beadle.yaml", "gpg_key_id: 12\n"),
        ("sam.ext/beadle.yaml", ""),
    ],
)
def test_a_handle_that_does_not_resolve_never_falls_back(
    ethos: Path, keys: Keys, file: str, content: str | None
) -> None:
    if content is None:
        (ethos / file).unlink()
    else:
        (ethos / file).write_text(content)
    with pytest.raises(OwnerKeyInvalid):
        documents.verify_document(DOCUMENT, _sign(keys.owner))


@pytest.mark.parametrize("handle", ["../sam", "sam/../sam", "..", "sam.ext/x", "s\0", "-"])
def test_a_handle_cannot_leave_its_folder(ethos: Path, settings, handle: str) -> None:
    settings.OWNER_HANDLE = handle
    with pytest.raises(OwnerKeyInvalid, match="not a handle"):
        documents.owner_key()


def test_gnupg_that_is_not_there_is_no_verdict_on_the_document(
    own, keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signature = _sign(keys.owner)
    documents.verify_document(DOCUMENT, signature)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DocumentCheckFailed):
        documents.verify_document(DOCUMENT, signature)


def test_the_canonical_form_is_fixed_bytes() -> None:
    assert documents.canonical({"b": [1, 2.5, True, None], "a": "ü\n", "signature": "x"}) == (
        '{"a":"ü\\n","b":[1,2.5,true,null]}'.encode()
    )
    assert documents.digest({"a": 1}) == documents.digest({"signature": "other", "a": 1})
    assert documents.digest({"a": 1}) != documents.digest({"a": 2})


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)


@hypothesis_settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text(max_size=6), _values, max_size=5))
def test_canonical_json_says_the_same_and_only_one_form_of_it(document: dict[str, Any]) -> None:
    signed = documents.canonical(document)
    again = json.loads(signed)
    assert again == {name: value for name, value in document.items() if name != "signature"}
    assert documents.canonical(again) == signed


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), 2**53, 1e18, datetime.now(UTC), b"x", {1: 2}, {"a"}, "\ud800"],
)
def test_what_json_cannot_hold_exactly_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="canonical"):
        documents.canonical({"a": value})


@pytest.mark.parametrize("document", [[], None, "x", 1])
def test_a_row_that_holds_no_mapping_is_refused_and_breaks_nothing(document: Any) -> None:
    with pytest.raises(InvalidInput, match="mapping"):
        documents.canonical(document)


def test_a_document_nested_without_end_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(InvalidInput):
        documents.canonical({"a": deep})


def test_the_key_file_may_be_binary_too(own, keys: Keys, settings) -> None:
    Path(settings.OWNER_KEY_FILE).write_bytes(public_key(keys.owner))
    documents.verify_document(DOCUMENT, _sign(keys.owner))
    assert os.environ.get("OWNER_FINGERPRINT", "") == ""

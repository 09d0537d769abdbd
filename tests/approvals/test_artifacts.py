"""Private bytes are encrypted at rest, by a key that is a secret reference."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.db import IntegrityError, transaction

from approvals import checks, registry
from approvals.exceptions import ArtifactUnreadable
from approvals.models import Artifact
from approvals.services import artifacts
from approvals.types import Contact, Purpose
from guards.exceptions import SecretUnavailable
from tests.approvals.kinds import CountingKind
from tests.approvals.sessions import CAPS, GuardedKind

pytestmark = pytest.mark.django_db


def test_what_is_sealed_opens_again_and_is_not_readable_meanwhile() -> None:
    sealed = artifacts.seal(b"private words")
    stored = Artifact.objects.get(pk=sealed.pk)
    assert b"private" not in bytes(stored.ciphertext)
    assert artifacts.unseal(stored) == b"private words"
    assert stored.size == 13


def test_a_key_is_written_once_for_its_owner_only(settings: Any, tmp_path: Path) -> None:
    path = tmp_path / "keys" / "artifact.key"
    settings.ARTIFACT_KEY_REF = f"file:{path}"
    assert artifacts.ensure_key() == path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    first = path.read_text()
    assert artifacts.ensure_key() is None
    assert path.read_text() == first
    assert artifacts.unseal(artifacts.seal(b"x")) == b"x"


def test_an_older_key_still_opens_and_the_newest_seals(settings: Any, tmp_path: Path) -> None:
    path = tmp_path / "artifact.key"
    settings.ARTIFACT_KEY_REF = f"file:{path}"
    artifacts.ensure_key()
    old = artifacts.seal(b"old")
    newest = Fernet.generate_key().decode()
    path.write_text(f"{newest}\n{path.read_text()}")
    assert artifacts.unseal(old) == b"old"
    assert Fernet(newest).decrypt(bytes(artifacts.seal(b"new").ciphertext)) == b"new"


def test_without_a_key_nothing_private_is_kept(settings: Any, tmp_path: Path) -> None:
    settings.ARTIFACT_KEY_REF = f"file:{tmp_path / 'absent'}"
    with pytest.raises(SecretUnavailable):
        artifacts.seal(b"private words")
    assert not Artifact.objects.exists()
    assert [found.id for found in checks.artifact_key_resolves()] == ["approvals.W001"]


@pytest.mark.one_database
@pytest.mark.parametrize("text", ["", "not a key\n", "AAAA"])
def test_a_key_that_is_none_is_named(settings: Any, tmp_path: Path, text: str) -> None:
    path = tmp_path / "artifact.key"
    path.write_text(text)
    path.chmod(0o600)
    settings.ARTIFACT_KEY_REF = f"file:{path}"
    with pytest.raises(SecretUnavailable):
        artifacts.seal(b"x")


@pytest.mark.invariant(18)
def test_another_key_or_swapped_bytes_do_not_open(settings: Any, tmp_path: Path) -> None:
    one, two = artifacts.seal(b"one"), artifacts.seal(b"two")
    Artifact.objects.filter(pk=one.pk).update(ciphertext=two.ciphertext)
    one.refresh_from_db()
    with pytest.raises(ArtifactUnreadable):
        artifacts.unseal(one)
    settings.ARTIFACT_KEY_REF = f"file:{tmp_path / 'other.key'}"
    artifacts.ensure_key()
    with pytest.raises(ArtifactUnreadable):
        artifacts.unseal(two)


@pytest.mark.invariant(18)
def test_the_digest_of_an_artifact_is_frozen() -> None:
    sealed = artifacts.seal(b"private words")
    with pytest.raises(IntegrityError), transaction.atomic():
        Artifact.objects.filter(pk=sealed.pk).update(sha256="0" * 64)


@pytest.mark.one_database
@pytest.mark.fault("sister-2")
def test_an_installation_without_kinds_or_with_orphans_does_not_pass_its_checks(
    kind: CountingKind,
) -> None:
    from approvals import registry
    from tests.approvals import factories

    assert checks.open_acts_have_their_kind() == []
    factories.held()
    known, acts = dict(registry.kinds()), dict(registry.acts())
    for name in known:
        registry.forget_kind(name)
    try:
        assert [found.id for found in checks.kinds_are_registered()] == ["approvals.E001"]
        assert [found.id for found in checks.open_acts_have_their_kind()] == ["approvals.E002"]
    finally:
        for name, one in known.items():
            register = registry.register_kind if name in acts else registry.register_permission
            register(one)
    assert checks.kinds_are_registered() == []


def _checked(check: Any) -> list[str | None]:
    return [found.id for found in check()]


@pytest.mark.one_database
@pytest.mark.parametrize(("seconds", "faults"), [(1, 0), (300, 0), (301, 1), (0, 1), (-5, 1)])
def test_an_approval_of_more_than_five_minutes_does_not_start(
    settings: Any, seconds: int, faults: int
) -> None:
    settings.APPROVAL_SECONDS = seconds
    assert _checked(checks.approvals_are_short) == ["approvals.E003"] * faults


def test_a_session_without_an_end_does_not_start(settings: Any) -> None:
    assert _checked(checks.sessions_end) == []
    settings.ROOT_HOURS = 0
    assert _checked(checks.sessions_end) == ["approvals.E004"]


def test_a_kind_that_could_contact_without_end_does_not_start(tmp_path: Path) -> None:
    kind = GuardedKind(tmp_path / "contacts")
    registry.register_kind(kind)
    try:
        assert _checked(checks.kinds_with_grants_are_finite) == []
        for broken in (
            {Purpose.EXECUTE: {Contact.READ: 8, Contact.POST: 2}},
            {Purpose.EXECUTE: {Contact.READ: 9, Contact.POST: 1}},
            {Purpose.PREVIEW: {Contact.READ: 6}},
            {Purpose.RECOVER: {Contact.POST: 1}},
        ):
            kind.caps = broken
            assert "approvals.E005" in _checked(checks.kinds_with_grants_are_finite)
        kind.caps, kind.by_policy = CAPS, True
        assert _checked(checks.kinds_with_grants_are_finite) == ["approvals.E005"]
        kind.by_policy, kind.via = False, frozenset({"console", "token"})
        assert _checked(checks.kinds_with_grants_are_finite) == ["approvals.E005"]
    finally:
        registry.forget_kind(kind.name)

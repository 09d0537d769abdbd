"""`prepare`: a fresh installation has its keys afterwards, and a second run touches nothing."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]


@pytest.fixture
def keys(settings, tmp_path: Path) -> tuple[Path, Path]:
    """Where the two keys are expected; neither is there yet."""
    artifact, installation = tmp_path / "keys" / "artifact.key", tmp_path / "keys" / "own.pem"
    settings.ARTIFACT_KEY_REF = f"file:{artifact}"
    settings.INSTALLATION_KEY_REF = f"file:{installation}"
    return artifact, installation


def prepare() -> str:
    out = StringIO()
    call_command("prepare", stdout=out)
    return out.getvalue()


def test_it_makes_the_keys_privately_and_says_so(keys: tuple[Path, Path]) -> None:
    said = prepare()
    for key in keys:
        assert str(key) in said
        assert key.stat().st_mode & 0o777 == 0o600


def test_a_second_run_touches_no_key(keys: tuple[Path, Path]) -> None:
    prepare()
    before = [key.read_bytes() for key in keys]
    assert prepare() == ""
    assert [key.read_bytes() for key in keys] == before

"""`rotate_artifact_key`: all stays readable, whatever stops it, and nothing needs the old one."""

from __future__ import annotations

import json
import os
import stat
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core.management import CommandError, call_command

from approvals.exceptions import KeyStillNeeded
from approvals.models import Artifact
from approvals.services import artifacts, rotation
from guards.exceptions import Conflict

pytestmark = pytest.mark.django_db


class PowerCut(BaseException):
    """The process ends here."""


@pytest.fixture
def path(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(rotation, "BATCH", 3)
    key = tmp_path / "keys" / "artifact.key"
    settings.ARTIFACT_KEY_REF = f"file:{key}"
    artifacts.ensure_key()
    return key


@pytest.fixture
def sealed(path: Path) -> list[bytes]:
    contents = [f"private {number}".encode() for number in range(8)]
    for content in contents:
        artifacts.seal(content)
    return contents


def opened() -> list[bytes]:
    return sorted(artifacts.unseal(one) for one in Artifact.objects.all())


def under(line: str) -> int:
    return sum(rotation._opens(Fernet(line), one) for one in Artifact.objects.all())


def lines(path: Path) -> list[str]:
    return path.read_text().split()


def run(*options: str) -> dict[str, Any]:
    out = StringIO()
    call_command("rotate_artifact_key", "--json", *options, stdout=out, stderr=StringIO())
    answer: dict[str, Any] = json.loads(out.getvalue())
    return answer


def age(path: Path) -> None:
    before = path.stat().st_mtime - rotation.SETTLING
    os.utime(path, (before, before))


def test_every_artifact_comes_under_a_new_key_and_the_old_one_stays(
    path: Path, sealed: list[bytes]
) -> None:
    old = lines(path)
    said = run()
    assert (said["schema"], said["ok"]) == ("rotate-artifact-key/1", True)
    assert (said["added_key"], said["encrypted"], said["already"]) == (True, 8, 0)
    newest, *rest = lines(path)
    assert rest == old
    assert (under(newest), under(old[0])) == (8, 0)
    assert opened() == sealed
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.one_database
def test_a_dry_run_says_it_and_writes_nothing(path: Path, sealed: list[bytes]) -> None:
    before = path.read_bytes(), sorted(bytes(a.ciphertext) for a in Artifact.objects.all())
    said = run("--dry-run")
    assert (said["added_key"], said["artifacts"], said["encrypted"]) == (True, 8, 8)
    after = path.read_bytes(), sorted(bytes(a.ciphertext) for a in Artifact.objects.all())
    assert before == after


@pytest.mark.parametrize("batches", [0, 1, 2])
def test_interrupted_anywhere_all_stays_readable_and_it_goes_on_with_the_same_key(
    path: Path, sealed: list[bytes], batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    usual = rotation._encrypt_batch

    def cut(*arguments: Any) -> None:
        if len(seen) == batches:
            raise PowerCut
        seen.append(1)
        usual(*arguments)

    monkeypatch.setattr(rotation, "_encrypt_batch", cut)
    with pytest.raises(PowerCut):
        rotation.rotate()
    monkeypatch.setattr(rotation, "_encrypt_batch", usual)
    begun_with = lines(path)
    assert (len(begun_with), under(begun_with[0])) == (2, batches * 3)
    assert opened() == sealed
    artifacts.seal(b"private later")
    said = run()
    assert (said["added_key"], said["encrypted"]) == (False, 8 - batches * 3)
    assert lines(path) == begun_with
    assert opened() == sorted([*sealed, b"private later"])


@pytest.mark.one_database
def test_a_crash_before_the_new_file_leaves_the_old_one_whole(
    path: Path, sealed: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()

    def cut(*_: object) -> None:
        raise PowerCut

    monkeypatch.setattr(Path, "replace", cut)
    with pytest.raises(PowerCut):
        rotation.rotate()
    assert path.read_bytes() == before
    assert opened() == sealed
    assert [one.name for one in path.parent.iterdir() if "rotating" not in one.name] == [path.name]


def test_old_keys_go_only_where_nothing_needs_them(path: Path, sealed: list[bytes]) -> None:
    run()
    with pytest.raises(KeyStillNeeded, match="may still seal"):
        rotation.forget_old()
    age(path)
    newest, old = lines(path)
    straggler = Artifact.objects.first()
    assert straggler is not None
    content = artifacts.unseal(straggler)
    Artifact.objects.filter(pk=straggler.pk).update(ciphertext=Fernet(old).encrypt(content))
    with pytest.raises(CommandError):
        run("--forget-old")
    assert lines(path) == [newest, old]
    assert run()["added_key"] is False
    assert run("--forget-old", "--dry-run")["forgotten_keys"] == 1
    assert lines(path) == [newest, old]
    assert run("--forget-old")["forgotten_keys"] == 1
    assert lines(path) == [newest]
    assert opened() == sealed
    assert run("--forget-old")["forgotten_keys"] == 0


def test_what_no_key_opens_is_named_and_left_alone(path: Path, sealed: list[bytes]) -> None:
    lost = Artifact.objects.first()
    assert lost is not None
    foreign = Fernet(Fernet.generate_key()).encrypt(b"foreign")
    Artifact.objects.filter(pk=lost.pk).update(ciphertext=foreign)
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("rotate_artifact_key", "--json", stdout=out, stderr=StringIO())
    assert ended.value.code == 1
    assert json.loads(out.getvalue())["unreadable"] == [str(lost.pk)]
    lost.refresh_from_db()
    assert bytes(lost.ciphertext) == foreign


def test_two_rotations_at_once_are_one(path: Path, sealed: list[bytes]) -> None:
    before = path.read_bytes()
    with rotation._alone(), pytest.raises(Conflict):
        rotation.rotate()
    assert path.read_bytes() == before


@pytest.mark.one_database
def test_a_key_in_another_store_is_the_operators_own(
    settings: Any, path: Path, sealed: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = lines(path)[0]
    settings.ARTIFACT_KEY_REF = "env:ARTIFACT_KEYS_OF_TESTS"
    monkeypatch.setenv("ARTIFACT_KEYS_OF_TESTS", old)
    assert run()["added_key"] is False
    newest = Fernet.generate_key().decode()
    monkeypatch.setenv("ARTIFACT_KEYS_OF_TESTS", f"{newest}\n{old}")
    assert run()["encrypted"] == 8
    assert under(newest) == 8
    with pytest.raises(CommandError, match="no file"):
        run("--forget-old")

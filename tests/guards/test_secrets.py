"""Secrets: references resolve in the promised order, mistakes are loud, values never print."""

from __future__ import annotations

import copy
import json
import logging
import os
import pickle
import traceback
from pathlib import Path

import pytest

from guards import secrets
from guards.exceptions import InvalidInput, SecretUnavailable
from guards.secrets import Secret, resolution

WORD = "tr0ub4dor&3 ünsafe"


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text(WORD + "\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH of our own before the system's: stand-ins for `pass` and `secret-tool` go here."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def _stand_in(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def _text(reference: str) -> str:
    return secrets.resolve(reference).reveal()


def test_a_secret_prints_as_dots_everywhere() -> None:
    secret = Secret(WORD)
    shown = [
        str(secret),
        repr(secret),
        f"{secret}",
        f"{secret:>10}",
        f"{[secret]}",
        "".join(map(str, [secret])),
    ]
    assert not any(WORD in text or "tr0ub" in text for text in shown)
    assert str(secret) == "•••"
    assert secret.reveal() == WORD
    for leak in (pickle.dumps, copy.deepcopy, json.dumps, lambda s: {s: 1}, vars):
        with pytest.raises(TypeError):
            leak(secret)
    assert secret == Secret(WORD)
    assert secret != Secret("other")
    assert secret != WORD


def test_a_variable_resolves_and_a_missing_or_empty_one_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MAIL_PASSWORD", WORD)
    assert _text("env:MAIL_PASSWORD") == WORD
    monkeypatch.setenv("MAIL_PASSWORD", "")
    with pytest.raises(SecretUnavailable, match="empty"):
        _text("env:MAIL_PASSWORD")
    with pytest.raises(SecretUnavailable, match="is not set"):
        _text("env:MAIL_PASSWORD_OTHER")


def test_a_file_resolves_without_the_line_end_that_editors_add(secret_file: Path) -> None:
    assert _text(f"file:{secret_file}") == WORD
    secret_file.write_text("one\ntwo\n\n")
    assert _text(f"file:{secret_file}") == "one\ntwo"
    secret_file.chmod(0o400)
    assert _text(f"file:{secret_file}") == "one\ntwo"


@pytest.mark.fault("sister-37")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o700, 0o777])
def test_a_file_with_another_mode_is_an_error_that_says_what_to_do(
    secret_file: Path, mode: int
) -> None:
    secret_file.chmod(mode)
    with pytest.raises(SecretUnavailable, match="chmod 600"):
        _text(f"file:{secret_file}")


def test_what_is_no_regular_file_of_ours_is_refused(
    secret_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(secret_file)
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name in ("link", "pipe", "", "."):
        with pytest.raises(SecretUnavailable):
            _text(f"file:{tmp_path}/{name}")
    with pytest.raises(SecretUnavailable, match="no file"):
        _text(f"file:{tmp_path}/nothing")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(SecretUnavailable, match="another user"):
        _text(f"file:{secret_file}")


def test_bytes_that_are_no_text_and_files_without_end_are_refused(secret_file: Path) -> None:
    secret_file.write_bytes(b"\xff\xfe")
    with pytest.raises(SecretUnavailable, match="text"):
        _text(f"file:{secret_file}")
    secret_file.write_bytes(b"x" * 70_000)
    with pytest.raises(SecretUnavailable, match="more than"):
        _text(f"file:{secret_file}")


def test_a_command_runs_without_a_shell(tmp_path: Path) -> None:
    assert _text("cmd:printf 'two words'") == "two words"
    assert _text("cmd:echo $HOME;id") == "$HOME;id"
    for line in ("cmd:false", "cmd:/nothing/there", "cmd:echo 'open", "cmd:true"):
        with pytest.raises(SecretUnavailable):
            _text(line)


@pytest.mark.fault("sister-35")
def test_a_command_does_not_see_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "of-ours")
    monkeypatch.setenv("DATABASE_URL", "of-ours")
    assert "of-ours" not in _text("cmd:env")


def test_a_command_that_hangs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolution, "TIMEOUT", 0.3)
    with pytest.raises(SecretUnavailable, match="within"):
        _text("cmd:sleep 60")
    with pytest.raises(SecretUnavailable):
        _text("cmd:yes")


def test_a_command_that_fails_is_not_quoted(
    programs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _stand_in(programs, "leaky", f"echo '{WORD}'; echo '{WORD}' >&2; exit 1")
    with caplog.at_level(logging.DEBUG), pytest.raises(SecretUnavailable) as caught:
        _text("cmd:leaky")
    assert "tr0ub" not in "".join(traceback.format_exception(caught.value)) + caplog.text


def test_pass_gives_the_first_line_of_an_entry(programs: Path) -> None:
    _stand_in(programs, "pass", '[ "$1 $2" = "show mail/agent" ] && printf "word\\nuser: x\\n"')
    assert _text("pass:mail/agent") == "word"
    with pytest.raises(SecretUnavailable, match="pass:mail/other"):
        _text("pass:mail/other")


def test_secret_tool_is_asked_by_service_and_account(programs: Path) -> None:
    _stand_in(
        programs, "secret-tool", '[ "$*" = "lookup service imap account me@x.org" ] && printf word'
    )
    assert _text("secret-tool:imap/me@x.org") == "word"


def test_a_password_manager_that_is_not_installed_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for reference in ("pass:a/b", "secret-tool:a/b"):
        with pytest.raises(SecretUnavailable, match="not installed"):
            _text(reference)
    monkeypatch.setattr(resolution, "find_spec", lambda name: None)
    with pytest.raises(SecretUnavailable, match="not installed"):
        _text("keyring:service/name")


def test_a_bare_name_is_looked_for_in_four_places_in_their_order(
    programs: Path, tmp_path: Path, settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SECRETS_DIR = tmp_path / "secrets"
    with pytest.raises(SecretUnavailable, match="nowhere") as caught:
        _text("imap-password")
    assert "COUNTERSIGN_IMAP_PASSWORD" in caught.value.detail
    monkeypatch.setenv("COUNTERSIGN_IMAP_PASSWORD", "from-environment")
    assert _text("imap-password") == "from-environment"
    secrets.store("imap-password", "from-file")
    assert _text("imap-password") == "from-file"
    asked = "lookup service countersign account imap-password"
    _stand_in(programs, "secret-tool", f'[ "$*" = "{asked}" ] && printf from-tool')
    assert _text("imap-password") == "from-tool"
    _stand_in(programs, "pass", '[ "$*" = "show countersign/imap-password" ] && echo from-pass')
    assert _text("imap-password") == "from-pass"
    _stand_in(programs, "pass", "exit 1")
    assert _text("imap-password") == "from-tool"


@pytest.mark.fault("sister-37")
def test_a_loose_file_stops_the_walk_instead_of_being_passed_over(
    programs: Path, tmp_path: Path, settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SECRETS_DIR = tmp_path / "secrets"
    monkeypatch.setenv("COUNTERSIGN_IMAP_PASSWORD", "from-environment")
    secrets.store("imap-password", "from-file")
    (tmp_path / "secrets" / "imap-password").chmod(0o644)
    with pytest.raises(SecretUnavailable, match="mode 0644"):
        _text("imap-password")


@pytest.mark.parametrize(
    "name", ["../etc/passwd", "a/b", "a\\b", "a..b", "", " a", "a\n", "-a", "é"]
)
def test_names_that_could_leave_their_place_are_refused(
    name: str, tmp_path: Path, settings
) -> None:
    settings.SECRETS_DIR = tmp_path
    with pytest.raises(SecretUnavailable):
        secrets.resolve(name)
    with pytest.raises(InvalidInput):
        secrets.store(name, "x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "reference",
    [
        "env:MAIL_PASSWORD", "file:/run/secrets/mail", "cmd:op read op://mail/password",
        "pass:mail/agent", "secret-tool:imap/me@x.org", "keyring:imap/agent", "imap-password",
        "smtp_password2", "agent.passphrase", "GmailToken",
    ],
)  # fmt: skip
def test_references_are_accepted(reference: str) -> None:
    secrets.validate_reference(reference)


@pytest.mark.parametrize(
    "raw",
    [
        "correct horse battery", "hunter2!", "sk-x1", "ghp_" + "a" * 36,
        "AKIAIOSFODNN7EXAMPLE", "xoxb-1234-5678", "dGhpc2lzYXNlY3JldHRva2Vu",
        "9f86d081884c7d659a2feaa0c55ad015", "eyJhbGciOiJIUzI1NiJ9.e30.x", "a1b2c3d4e5f6a7b8",
        "-----BEGIN PRIVATE KEY-----", "https://user:pass@host/", "password: hunter2",
        "file:relative", "file:/a/../b", "env:not a name", "env:", "cmd:", "pass:-p", "pass:a/../b",
        "secret-tool:imap", "keyring:a/b/c", "plain:text", "x" * 65, "abcd efgh ijkl mnop",
    ],
)  # fmt: skip
def test_what_looks_like_a_secret_or_is_no_reference_is_refused_and_not_repeated(raw: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        secrets.validate_reference(raw)
    assert len(raw) < 5 or raw not in caught.value.detail


def test_storing_writes_a_private_file_whole_and_gives_its_reference(
    tmp_path: Path, settings
) -> None:
    settings.SECRETS_DIR = tmp_path / "deep" / "secrets"
    reference = secrets.store("smtp-password", WORD)
    path = tmp_path / "deep" / "secrets" / "smtp-password"
    assert reference == f"file:{path}"
    assert _text(reference) == WORD
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    secrets.store("smtp-password", "newer")
    assert _text(reference) == "newer"
    assert [entry.name for entry in path.parent.iterdir()] == ["smtp-password"]
    with pytest.raises(InvalidInput):
        secrets.store("smtp-password", "\n")


def test_a_file_for_a_key_of_our_own_is_made_once_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "installation.pem"
    assert secrets.create_file(f"file:{path}", "first") == path
    assert secrets.create_file(f"file:{path}", "second") is None
    assert _text(f"file:{path}") == "first"
    assert [entry.name for entry in path.parent.iterdir()] == ["installation.pem"]
    assert secrets.create_file("env:SOMETHING", "x") is None

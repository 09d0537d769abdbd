"""`make setup` writes .env once, privately, and keeps what is there."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from config import setup
from config.management.commands.up import mcp_url


def test_it_writes_a_private_file(tmp_path: Path):
    path = tmp_path / ".env"
    assert setup.add_settings(path, {"SECRET_KEY": "x"}) == ["SECRET_KEY"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert "SECRET_KEY=x\n" in path.read_text()


def test_it_keeps_what_is_there_and_adds_what_is_missing(tmp_path: Path):
    path = tmp_path / ".env"
    path.write_text("# mine\nSECRET_KEY=kept\n#DEBUG=true")
    assert setup.add_settings(path, {"SECRET_KEY": "new", "DEBUG": "false"}) == ["DEBUG"]
    assert path.read_text() == "# mine\nSECRET_KEY=kept\n#DEBUG=true\nDEBUG=false\n"


def test_a_second_run_changes_nothing(tmp_path: Path):
    path = tmp_path / ".env"
    setup.add_settings(path, {"SECRET_KEY": "x"})
    before = path.read_bytes()
    assert setup.add_settings(path, {"SECRET_KEY": "y"}) == []
    assert path.read_bytes() == before


def test_the_artifact_key_is_made_once_and_private(tmp_path: Path):
    path = tmp_path / "keys" / "artifact.key"
    assert setup.create_artifact_key(path)
    before = path.read_bytes()
    assert Fernet(before.strip())
    assert path.stat().st_mode & 0o777 == 0o600
    assert not setup.create_artifact_key(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000/mcp"),
        ("0.0.0.0", "http://127.0.0.1:8000/mcp"),
        ("::", "http://[::1]:8000/mcp"),
        ("::1", "http://[::1]:8000/mcp"),
        ("house.example", "http://house.example:8000/mcp"),
    ],
)
def test_the_worker_of_up_is_told_where_its_web_process_is(host: str, url: str):
    assert mcp_url(host, 8000) == url

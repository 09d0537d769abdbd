"""Fixtures of approvals: keys, and the kind of act that counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from approvals import registry
from approvals.services import artifacts
from teams.services import checkpoints
from tests.approvals.kinds import CountingKind


@pytest.fixture(autouse=True, scope="session")
def installation_keys() -> None:
    """An artifact key and an installation key in this run's data directory."""
    artifacts.ensure_key()
    checkpoints.ensure_key()


@pytest.fixture
def kind(tmp_path: Path) -> Iterator[CountingKind]:
    """The counting kind, registered for one test."""
    counting = CountingKind(tmp_path / "contacts")
    registry.register_kind(counting)
    yield counting
    registry.forget_kind(counting.name)

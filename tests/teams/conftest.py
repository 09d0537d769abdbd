"""Fixtures of teams: keys, and a way to fill the log."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from guards.services.units import unit_of_work
from guards.types import Subject
from teams.services import checkpoints
from teams.services.events import append_event

Fill = Callable[..., None]


@pytest.fixture(autouse=True, scope="session")
def installation_key() -> None:
    """An installation key in this run's data directory."""
    checkpoints.ensure_key()


@pytest.fixture
def fill() -> Fill:
    """Append events, one unit of work each: `fill(5, project="apollo")`."""

    def append(number: int, *, project: str = "", kind: str = "project.changed") -> None:
        for index in range(number):
            with unit_of_work():
                append_event(
                    kind=kind,
                    subject=Subject("teams.project", f"p{index}"),
                    actor="operator:ada",
                    project=project,
                    facts={"slug": f"p{index}", "umlaut": "Grüße", "n": index},
                )

    return append

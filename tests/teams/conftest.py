"""Fixtures of teams: keys, and a way to fill the log."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

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
    """Append events, one unit of work each: `fill(5, project="apollo")`.

    `at_once` makes them all one unit of work.
    """

    def note(index: int, project: str, kind: str) -> None:
        append_event(
            kind=kind,
            subject=Subject("teams.project", f"p{index}"),
            actor="operator:ada",
            project=project,
            facts={"slug": f"p{index}", "umlaut": "Grüße", "n": index},
        )

    def append(
        number: int,
        *,
        project: str = "",
        kind: str = "project.changed",
        at_once: bool = False,
    ) -> None:
        with unit_of_work() if at_once else nullcontext():
            for index in range(number):
                with unit_of_work():
                    note(index, project, kind)

    return append

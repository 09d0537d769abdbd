"""Who looks after a task's claims: all that it holds, and nothing that it has let go."""

from __future__ import annotations

import uuid

import pytest
from django.db import InterfaceError

from pipelines.services import claims, watching
from pipelines.services.claims import Claim
from pipelines.services.watching import Watch


@pytest.fixture
def quiet(monkeypatch):
    """Nothing was taken away, and each renewal is due and works; the claims that were renewed."""
    renewed: list[Claim] = []

    def renew(claim: Claim) -> bool:
        renewed.append(claim)
        return True

    monkeypatch.setattr(claims, "is_taken_away", lambda claim: False)
    monkeypatch.setattr(claims, "renew", renew)
    return renewed


def claim() -> Claim:
    return Claim(uuid.uuid4(), "worker", 1)


def test_claims_that_are_held_are_renewed_each_at_its_time_and_held_on(quiet):
    watch, mine, other = Watch(), claim(), claim()
    watch.hold(mine)
    watch.hold(other)
    watch._look_after(mine, watch._held[mine])
    assert quiet == []
    watch._held[mine] = 0.0
    watch._look_after(mine, 0.0)
    assert quiet == [mine]
    assert watch._held.keys() == {mine, other}
    assert watch._held[mine] > 0


@pytest.mark.parametrize("later", [None, claim()])
def test_the_renewal_of_one_never_brings_back_what_was_let_go(quiet, monkeypatch, later):
    """The task goes on to its next pipeline while the last one is being renewed."""
    watch, first = Watch(), claim()
    watch._held[first] = 0.0

    def meanwhile(claim: Claim) -> bool:
        watch.let_go(first)
        if later is not None:
            watch.hold(later)
        return False

    monkeypatch.setattr(claims, "renew", meanwhile)
    watch._look_after(first, 0.0)

    assert [*watch._held] == ([] if later is None else [later])


@pytest.mark.parametrize("error", [InterfaceError("closed"), RuntimeError("unforeseen")])
def test_what_goes_wrong_once_does_not_end_the_watch(quiet, monkeypatch, error):
    def stumble(claim: Claim) -> bool:
        raise error

    watch, mine = Watch(), claim()
    watch._held[mine] = 0.0
    monkeypatch.setattr(claims, "is_taken_away", stumble)
    monkeypatch.setattr(watching.connections, "close_all", lambda: None)
    watch._look_after(mine, 0.0)
    assert watch._held == {mine: 0.0}, "it is looked after again"

"""Who looks after a task's claims: one at a time, and never the one before in place of the next."""

from __future__ import annotations

import uuid

import pytest
from django.db import InterfaceError

from pipelines.services import claims
from pipelines.services.claims import Claim, Watch


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


def test_a_claim_that_is_held_is_renewed_and_held_on(quiet):
    watch, mine = Watch(), claim()
    watch.hold(mine)
    watch._look_after(mine, watch._held[1])
    assert quiet == []
    watch._held = (mine, 0.0)
    watch._look_after(mine, 0.0)
    assert quiet == [mine]
    assert watch._held[0] == mine
    assert watch._held[1] > 0


@pytest.mark.parametrize("later", [None, claim()])
def test_the_renewal_of_one_never_takes_the_place_of_what_is_held_since(quiet, monkeypatch, later):
    """The task goes on to its next pipeline while the last one is being renewed."""
    watch, first = Watch(), claim()
    watch._held = (first, 0.0)

    def meanwhile(claim: Claim) -> bool:
        if later is None:
            watch.let_go()
        else:
            watch.hold(later)
        return False

    monkeypatch.setattr(claims, "renew", meanwhile)
    watch._look_after(first, 0.0)

    assert (watch._held and watch._held[0]) == later


@pytest.mark.parametrize("error", [InterfaceError("closed"), RuntimeError("unforeseen")])
def test_what_goes_wrong_once_does_not_end_the_watch(quiet, monkeypatch, error):
    def stumble(claim: Claim) -> bool:
        raise error

    watch, mine = Watch(), claim()
    watch._held = (mine, 0.0)
    monkeypatch.setattr(claims, "is_taken_away", stumble)
    monkeypatch.setattr(claims.connections, "close_all", lambda: None)
    watch._look_after(mine, 0.0)
    assert watch._held == (mine, 0.0), "it is looked after again"

"""The story of a lost answer says what it saw, and says so where it is not as told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from approvals.models import Consent, Effect, Job, Observation
from approvals.services import artifacts
from config.demo import unknown
from config.demo.google import MemoryGoogle, small_google
from mail.registry import google
from teams.services import checkpoints

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]


@pytest.fixture(autouse=True)
def keys(tmp_path, settings):
    """An installation of its own."""
    settings.SECRETS_DIR = str(tmp_path / "secrets")
    artifacts.ensure_key()
    checkpoints.ensure_key()


def told(spoil: Callable[[MemoryGoogle], object] = lambda google: None) -> unknown.Told:
    with small_google() as known:
        story = unknown.Story(known, lambda line: None)
        spoil(known)
        return story.told()


@pytest.mark.invariant(20)
def test_a_lost_answer_is_unknown_and_a_look_finds_it_and_changes_nothing():
    before, lines = google(), []
    report = unknown.play(lines.append)
    assert report.wrong == []
    effect = {"phase": "unknown", "reason": "connection-lost"}
    assert report.as_json() == {
        "schema": "demo-unknown/1",
        "ok": True,
        "posts": 1,
        "effect": effect,
        "observation": {"outcome": "verified_sent_observation"},
        "effect_after": effect,
    }
    assert len(lines) == 2
    assert google() is before, "the small Google is gone with the story"
    (act,) = Effect.objects.all()
    assert (act.kind, act.revision) == ("mail.gmail", 3)
    look = Job.objects.get(kind="recover")
    assert Observation.objects.get().job_id == look.pk
    used = {one.contact: one.spent for one in Consent.objects.get(job=look).budgets.all()}
    assert used == {"refresh": 1, "userinfo": 1, "profile": 1, "list": 1, "get": 1}


def test_where_the_look_finds_nothing_it_is_not_as_told():
    def hide(known: MemoryGoogle) -> None:
        for person in known.people.values():
            person.mailbox.files_sent = False

    report = told(hide)
    assert (report.posts, report.observation) == (1, "unknown_observation")
    assert report.effect == report.effect_after
    assert report.as_json()["ok"] is False
    assert report.wrong == ["what the look found: unknown_observation, not " + unknown.FOUND]


def test_where_the_id_was_replaced_it_is_not_as_told_either():
    def replace(known: MemoryGoogle) -> None:
        for person in known.people.values():
            person.mailbox.replaces_message_id = True

    assert told(replace).as_json()["ok"] is False

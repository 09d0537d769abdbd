"""The replay ledger, the installation's settings, and the heartbeats."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction
from django.utils import timezone

from guards import selectors
from guards.exceptions import InvalidInput, Refused
from guards.models import Heartbeat, ReplayEntry
from guards.services import heartbeats, replay, settings
from guards.types import Asker, Subject
from tests.guards.factories import OPERATOR

pytestmark = pytest.mark.django_db

KEY = "0" * 64


@pytest.mark.invariant(12)
@pytest.mark.fault("W6")
def test_one_key_is_taken_once_ever() -> None:
    assert replay.claim(key=KEY, subject=Subject("pipelines.pipeline", "1"))
    assert not replay.claim(key=KEY, subject=Subject("pipelines.pipeline", "2"))
    assert ReplayEntry.objects.get().subject_id == "1"
    assert selectors.replay_known([KEY, "1" * 64]) == {KEY}
    assert selectors.replay_known([]) == frozenset()


def test_a_rollback_gives_the_key_back() -> None:
    with pytest.raises(RuntimeError), transaction.atomic():
        assert replay.claim(key=KEY, subject=Subject("pipelines.pipeline", "1"))
        raise RuntimeError("the plan was refused")
    assert replay.claim(key=KEY, subject=Subject("pipelines.pipeline", "2"))


def test_the_earliest_instant_of_execution_is_kept_with_its_zone() -> None:
    assert selectors.execute_not_before() is None
    instant = datetime(2026, 11, 30, 12, tzinfo=UTC)
    settings.put(name=settings.EXECUTE_NOT_BEFORE, value=instant, by=OPERATOR)
    assert selectors.execute_not_before() == instant
    settings.put(name=settings.EXECUTE_NOT_BEFORE, value=None, by=OPERATOR)
    assert selectors.execute_not_before() is None


def test_a_setting_has_a_known_name_the_right_type_and_an_operator() -> None:
    now = timezone.now()
    with pytest.raises(InvalidInput, match="no setting"):
        settings.put(name="execute_not_befor", value=now, by=OPERATOR)
    with pytest.raises(InvalidInput, match="no setting"):
        settings.get("execute_not_befor")
    for value in ("yesterday", 7, now.replace(tzinfo=None)):
        with pytest.raises(InvalidInput, match="point in time"):
            settings.put(name=settings.EXECUTE_NOT_BEFORE, value=value, by=OPERATOR)
    with pytest.raises(Refused):
        settings.put(name=settings.EXECUTE_NOT_BEFORE, value=now, by=Asker("token", "cs_1"))


def test_a_process_beats_in_one_row_and_keeps_its_start() -> None:
    first = heartbeats.beat(role="worker")
    again = heartbeats.beat(role="worker")
    assert again.started_at == first.started_at
    assert again.seen_at >= first.seen_at
    assert Heartbeat.objects.count() == 1
    newest = selectors.latest_heartbeat("worker")
    assert newest is not None
    assert newest.holder == first.holder
    assert selectors.latest_heartbeat("watcher") is None


def test_rows_of_processes_long_silent_are_forgotten_and_a_goodbye_is_at_once() -> None:
    long_ago = timezone.now() - heartbeats.FORGET_AFTER - timedelta(minutes=1)
    Heartbeat.objects.create(holder="gone", role="worker", seen_at=long_ago)
    heartbeats.beat(role="worker")
    assert not Heartbeat.objects.filter(holder="gone").exists()
    heartbeats.stop(role="worker")
    assert not Heartbeat.objects.exists()

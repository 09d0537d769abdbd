"""A connection to the database that breaks while a program runs takes nobody's end with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection

from guards.services import units
from guards.services.units import unit_of_work
from pipelines.models import Pipeline, Stage
from pipelines.services import carrying, claims, execution
from pipelines.signals import stage_returned, stage_starting
from teams.services import verification
from tests import databases
from tests.pipelines.test_group import at, due, statuses  # noqa: F401 - a fixture

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _far_away(tmp_path) -> Iterator[None]:
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has no connection that could be lost")
    with databases.shared(tmp_path):
        yield


def lose(**_: Any) -> None:
    """As a server that was started anew, or a wall that forgets whoever is silent, does it."""
    if connection.connection is None:
        return
    pid = connection.connection.info.backend_pid
    with psycopg.connect(databases.url(), autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])


class Once:
    """Loses the connection the first time."""

    def __init__(self) -> None:
        self.is_done = False

    def __call__(self, **_: Any) -> None:
        if not self.is_done:
            self.is_done = True
            lose()


@pytest.mark.parametrize("workers", [1, 3], ids=["in-a-group", "one-by-one"])
@pytest.mark.parametrize("loses", [Once, lambda: lambda **_: None], ids=["lost", "kept"])
def test_the_ends_of_what_ran_meanwhile_go_on_record(due, settings, workers, loses):  # noqa: F811
    settings.PIPELINE_CONCURRENCY, settings.QUEUE_WORKERS = 3, workers
    first = due("a")
    due("b", "sleep 0.3")
    due("c", "sleep 0.3")

    with at(stage_returned, loses()):
        execution.run_on(pipeline_id=first.pk)
    while due_ones := claims.whose_turn_has_come():
        execution.run_on(pipeline_id=due_ones[0])

    assert statuses() == {"a": "completed", "b": "completed", "c": "completed"}
    assert verification.verify().ok


@pytest.mark.parametrize("seconds", [0.0, 1000.0], ids=["long", "short"])
def test_what_follows_a_long_program_finds_a_connection(due, monkeypatch, seconds):  # noqa: F811
    monkeypatch.setattr(carrying, "_LONG_SECONDS", seconds)
    pipeline = due("a", reply=True)

    with at(stage_starting, lose), suppress(OperationalError):
        execution.run(pipeline_id=pipeline.pk)

    stage = Stage.objects.get(command="a")
    assert stage.status == ("succeeded" if seconds == 0.0 else "running")


def test_a_unit_after_one_that_found_it_lost_has_another(due):  # noqa: F811
    pipeline = due("a")
    lose()
    with pytest.raises(OperationalError):
        Pipeline.objects.count()
    with unit_of_work():
        assert Pipeline.objects.get().pk == pipeline.pk


def test_a_unit_inside_of_a_transaction_that_is_lost_has_no_other(due):  # noqa: F811
    due("a")
    with pytest.raises(OperationalError), unit_of_work():
        lose()
        with unit_of_work():
            Pipeline.objects.count()
    assert Pipeline.objects.count() == 1


def test_whoever_looks_after_it_in_a_transaction_leaves_it(due):  # noqa: F811
    due("a")
    with unit_of_work():
        before = connection.connection
        units.look_after_connection()
        assert connection.connection is before

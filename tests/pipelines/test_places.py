"""Workers share out the due pipelines by their ids, and leave none of them for ever."""

from __future__ import annotations

from uuid import UUID

import pytest

from pipelines.services import places
from pipelines.services.places import Place

#: Even and odd ones are of two kinds, oldest first.
EIGHT = [UUID(int=number) for number in range(8)]
EVEN, ODD = EIGHT[::2], EIGHT[1::2]


@pytest.fixture(autouse=True)
def two_workers_of_four(settings, monkeypatch):
    settings.PIPELINE_CONCURRENCY, settings.QUEUE_WORKERS = 8, 2
    monkeypatch.setattr(places, "PATIENCE", 60.0)


def test_a_worker_that_has_met_no_other_takes_the_oldest():
    assert Place().choose(EIGHT, 3) == EIGHT[:3]
    assert Place().window(3) == 3


def test_two_that_have_met_never_reach_for_the_same_ones():
    first, second = Place(), Place()
    first.meet(EVEN[0])
    second.meet(ODD[0])

    assert first.window(4) == 16
    assert first.choose(EIGHT, 4) == ODD
    assert second.choose(EIGHT, 4) == EVEN


def test_without_enough_of_its_own_kind_it_takes_the_youngest_of_the_others():
    place = Place()
    place.meet(EVEN[0])

    assert place.choose([*EVEN, ODD[0]], 3) == [EVEN[2], EVEN[3], ODD[0]]
    assert place.choose(EVEN, 9) == EVEN
    assert place.choose([], 3) == []


def test_the_oldest_is_left_to_others_for_a_moment_and_then_taken(monkeypatch):
    place = Place()
    place.meet(EVEN[0])
    assert place.choose(EIGHT, 2) == ODD[:2]
    assert place.choose(EIGHT, 2) == ODD[:2]

    monkeypatch.setattr(places, "PATIENCE", 0.0)
    assert place.choose(EIGHT, 2) == EIGHT[:2]
    assert place.choose(EIGHT[2:], 2) == ODD[1:3], "that one is another one"


def test_many_workers_look_through_a_bounded_part_of_the_queue(settings):
    settings.PIPELINE_CONCURRENCY, settings.QUEUE_WORKERS = 1000, 500
    place = Place()
    place.meet(EVEN[0])
    assert place.window(2) == 200
    assert place.window(300) == 300

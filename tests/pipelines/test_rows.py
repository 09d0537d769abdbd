"""Rows in plain SQL are the rows that the ORM reads and writes, on every database."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from django.db import IntegrityError, transaction

from guards.services.units import unit_of_work
from pipelines.exceptions import ClaimLost
from pipelines.models import Command, Pipeline, Stage
from pipelines.services import rows, transitions
from teams.models import Event
from teams.services import events, verification
from tests.pipelines.factories import MessageFactory, PipelineFactory, StageFactory

pytestmark = pytest.mark.django_db

PIPE = {"data": {"é": [1, 2.5, None, True, "a 'quoted' %s"]}, "files": []}
AT = datetime(2026, 11, 30, 23, 59, 59, 123456, tzinfo=UTC)


def as_values(row) -> dict[str, object]:
    return {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}


@pytest.mark.parametrize("model", [Pipeline, Stage, Command])
def test_what_is_found_is_what_the_orm_finds(owner, model):
    owner.install("see", binary="cat")
    pipeline = PipelineFactory(pipe=PIPE, files_at=AT, write_set=["a:b"])
    StageFactory(pipeline=pipeline, position=1, command="see", usage={"usd": 0.5})
    expected = model.objects.get()

    (found,) = rows.find(model, where={"pk": expected.pk})

    assert as_values(found) == as_values(expected)
    assert found == expected


def test_rows_are_found_by_each_condition_in_order_and_no_others(db):
    pipeline = PipelineFactory()
    later = StageFactory(pipeline=pipeline, position=2, command="b")
    first = StageFactory(pipeline=pipeline, position=1, command="a")
    StageFactory(pipeline=PipelineFactory(), position=1, command="a")
    mine = {"pipeline_id": pipeline.pk}

    assert rows.find(Stage, where=mine, order_by="position") == [first, later]
    assert rows.find(Stage, where=mine, order_by="position", limit=1) == [first]
    assert rows.find(Stage, where={**mine, "status": ["pending"], "command": "b"}) == [later]
    assert rows.find(Stage, where={**mine, "status": []}) == []


def test_an_update_changes_the_row_that_is_as_it_must_be_and_only_that(db):
    pipeline, other = PipelineFactory(fence=3), PipelineFactory(fence=3)
    changes = {"status": Pipeline.Status.RUNNING, "pipe": PIPE, "files_at": AT, "fence": 4}
    where = {"pk": pipeline.pk, "status": Pipeline.DUE, "fence": 3}

    assert rows.update(Pipeline, where={**where, "fence": 2}, changes=changes) is False
    assert rows.update(Pipeline, where={**where, "status": []}, changes=changes) is False
    assert rows.update(Pipeline, where=where, changes=changes) is True
    assert rows.update(Pipeline, where=where, changes=changes) is False  # it is not due any more

    pipeline.refresh_from_db()
    assert (pipeline.status, pipeline.pipe, pipeline.files_at) == ("running", PIPE, AT)
    other.refresh_from_db()
    assert (other.status, other.fence) == ("planned", 3)


def test_a_row_that_is_inserted_is_the_row_that_the_orm_would_insert(db):
    pipeline = PipelineFactory()
    expected = StageFactory(pipeline=pipeline, position=1, usage={"usd": 0.5}, started_at=AT)
    stage = Stage(**{**as_values(expected), "id": None, "position": 2})

    rows.insert(stage)

    assert stage.pk > expected.pk, "a key that the database makes is set"
    found = as_values(Stage.objects.get(pk=stage.pk))
    assert found == {**as_values(expected), "id": stage.pk, "position": 2}


def test_a_row_with_a_key_of_its_own_is_inserted_once(db):
    pipeline = PipelineFactory(pipe=PIPE)
    again = Pipeline.objects.get(pk=pipeline.pk)
    with pytest.raises(IntegrityError), transaction.atomic():
        rows.insert(again)
    again.pk = uuid4()
    again.message = MessageFactory()
    rows.insert(again)
    assert as_values(Pipeline.objects.get(pk=again.pk)) == as_values(again)


def test_a_row_that_is_kept_is_the_row_that_is_found(db):
    stage = StageFactory(pipeline=PipelineFactory(), position=1)
    with unit_of_work():
        assert rows.find(Stage, where={"pk": stage.pk}, keep=True) == [stage]
        assert rows.find(Stage, where={"pk": stage.pk, "status": []}, keep=True) == []


@pytest.mark.parametrize("model", [Pipeline, Stage])
def test_parts_of_a_row_are_those_of_the_whole_row(db, django_assert_num_queries, model):
    pipeline = PipelineFactory(pipe=PIPE, files_at=AT, write_set=["a:b"])
    StageFactory(pipeline=pipeline, position=1, usage={"usd": 0.5}, started_at=AT)
    whole = as_values(model.objects.get())

    for name, value in whole.items():
        (found,) = rows.find_parts(model, (name,), where={"pk": whole["id"]})
        with django_assert_num_queries(0):
            assert (found.pk, getattr(found, name)) == (whole["id"], value)
        assert found.get_deferred_fields() == {*whole} - {"id", name}


def test_parts_are_found_page_by_page_and_by_a_value_that_is_there(db):
    pipelines = [PipelineFactory(lease_until=lease) for lease in (AT, None, AT, AT)]
    order = {"order_by": "created_at"}

    def found(**options) -> list[Pipeline]:
        return rows.find_parts(Pipeline, ("write_set",), **order, **options)

    assert found(where={"status": "planned"}) == pipelines
    assert found(where={"status": "planned"}, limit=2, skip=1) == pipelines[1:3]
    assert found(where={"lease_until": rows.PRESENT}) == [pipelines[at] for at in (0, 2, 3)]
    assert found(where={"lease_until": rows.PRESENT, "status": "queued"}) == []


# --- several in one message -----------------------------------------------------------------------

AWKWARD = {
    "data": ["a; b", "100% of %s, %(x)s", "it's \"quoted\" \\ 'twice''", "é 😀 \u2028", "--"]
}


def test_a_message_answers_each_statement_in_its_order(db):
    pipeline, other = PipelineFactory(fence=1), PipelineFactory(fence=2)
    stage = StageFactory(pipeline=pipeline, position=1, command="a; %s 'b'")
    message = rows.Message()
    before = message.find(Pipeline, where={"pk": pipeline.pk})
    moved = message.update(Pipeline, where={"pk": pipeline.pk}, changes={"pipe": AWKWARD})
    in_vain = message.update(Pipeline, where={"pk": other.pk, "fence": 1}, changes={"fence": 9})
    several = message.update_several(
        Pipeline, [pipeline.pk, other.pk], where={"fence": 2}, changes={"error": "; %s '"}
    )
    parts = message.find_parts(Stage, ("command",), where={"command": "a; %s 'b'"})
    after = message.find(Pipeline, where={"pk": pipeline.pk})
    is_there = message.find_some(Pipeline, where={"pk": other.pk, "error": "; %s '"})
    is_gone = message.find_some(Pipeline, where={"pk": []})

    message.send()

    assert (before.value[0].pipe, after.value[0].pipe) == (pipeline.pipe, AWKWARD)
    assert (moved.value, in_vain.value, several.value) == (True, False, {other.pk})
    assert (parts.value, parts.value[0].command) == ([stage], "a; %s 'b'")
    assert (is_there.value, is_gone.value) == (True, False)
    assert (Pipeline.objects.get(pk=other.pk).error, Stage.objects.get().pipeline) == (
        "; %s '",
        pipeline,
    )


def test_a_message_is_asked_once_and_what_was_added_comes_after_its_own(db):
    pipeline = PipelineFactory(fence=1)
    message, more = rows.Message(), rows.Message()
    later = more.find(Pipeline, where={"fence": 2})
    message.update(Pipeline, where={"fence": 1}, changes={"fence": 2})
    message.add(more)
    message.send()
    message.send()
    assert later.value == [pipeline]
    pipeline.refresh_from_db()
    assert pipeline.fence == 2


def test_an_answer_is_not_there_before_its_message_is_sent(db):
    asked = rows.Message().find(Pipeline, where={})
    with pytest.raises(AssertionError, match="not sent"):
        _ = asked.value


@pytest.mark.django_db(transaction=True)
def test_what_finds_no_row_in_the_middle_takes_back_what_moved_around_it():
    pipeline = PipelineFactory(fence=3)
    first = StageFactory(pipeline=pipeline, position=1)
    second = StageFactory(pipeline=pipeline, position=2, status="cancelled")
    third = StageFactory(pipeline=pipeline, position=3)

    with pytest.raises(ClaimLost), unit_of_work():
        message = rows.Message()
        asked = [
            transitions.ask_stage(
                message, stage, Stage.Status.SUCCEEDED, old=[Stage.Status.PENDING]
            )
            for stage in (first, second, third)
        ]
        message.send(last=True)
        assert [one.value for one in asked] == [True, False, True]
        for one in asked:
            transitions.must(one.value, "a stage")

    assert [*Stage.objects.order_by("position").values_list("status", flat=True)] == [
        *("pending", "cancelled", "pending")
    ]
    assert not Event.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_what_the_database_refuses_in_the_middle_takes_back_what_moved_before():
    pipeline = PipelineFactory()
    stage = StageFactory(pipeline=pipeline, position=1)
    StageFactory(pipeline=pipeline, position=2)
    mine = {"pk": stage.pk}

    with pytest.raises(IntegrityError), unit_of_work():
        message = rows.Message()
        message.update(Pipeline, where={"pk": pipeline.pk}, changes={"fence": 7})
        message.update(Stage, where=mine, changes={"position": 2})
        message.update(Stage, where=mine, changes={"attempt": 7})
        message.send(last=True)

    pipeline.refresh_from_db()
    stage.refresh_from_db()
    assert (pipeline.fence, stage.attempt) == (0, 0)


def test_a_row_moves_under_the_row_that_its_key_points_to_and_no_other(db):
    held, lost = (
        PipelineFactory(fence=1, claimed_by="me"),
        PipelineFactory(fence=2, claimed_by="you"),
    )
    mine, theirs = (StageFactory(pipeline=one, position=1) for one in (held, lost))
    under = rows.KeyOf(Pipeline, {"pk": [held.pk, lost.pk], "fence": 1, "claimed_by": "me"})

    message = rows.Message()
    message.update(Pipeline, where={"pk": held.pk, "fence": 1}, changes={"status": "running"})
    moved = message.update_several(
        Stage,
        [mine.pk, theirs.pk],
        where={"pipeline": rows.KeyOf(Pipeline, {**under.where, "status": "running"})},
        changes={"status": "succeeded"},
    )
    message.send()

    assert moved.value == {mine.pk}
    theirs.refresh_from_db()
    assert theirs.status == "pending"


# --- the head of the log with the last message ----------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_the_head_that_went_with_the_last_message_is_the_one_that_is_linked_to():
    stages = [StageFactory(pipeline=PipelineFactory(), position=1) for _ in range(3)]
    for stage in stages:
        with unit_of_work():
            message = rows.Message()
            moved = transitions.ask_stage(
                message, stage, Stage.Status.CANCELLED, old=[Stage.Status.PENDING]
            )
            message.send(last=True)
            transitions.must(moved.value, "a stage")
            transitions.note_stage(stage, [Stage.Status.CANCELLED])

    assert [*Event.objects.order_by("seq").values_list("seq", flat=True)] == [1, 2, 3]
    assert verification.verify().ok


@pytest.mark.django_db(transaction=True)
def test_the_head_is_asked_for_by_itself_after_a_message_of_an_inner_unit():
    """What the outer one may still lock comes before the head, as everywhere."""
    stage = StageFactory(pipeline=PipelineFactory(), position=1)
    with unit_of_work() as unit:
        with unit_of_work():
            assert events.head_to_hold() is None
            message = rows.Message()
            message.update(Stage, where={"pk": stage.pk}, changes={"attempt": 1})
            message.send(last=True)
        assert unit.notes == []
        assert events.head_to_hold() is not None
        transitions.note_stage(stage, [Stage.Status.CANCELLED])
    assert events.head_to_hold() is None, "no unit is open"
    assert verification.verify().ok

"""Rows in plain SQL are the rows that the ORM reads and writes, on every database."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from django.db import IntegrityError, transaction

from guards.services.units import unit_of_work
from pipelines.models import Command, Pipeline, Stage
from pipelines.services import rows
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

"""A pipeline that was looked at begins as it was seen, or not at all."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import DataError, connection, transaction
from django.utils import timezone

from guards.services.units import unit_of_work
from guards.signals import unit_closing
from mail.models import Part
from pipelines.exceptions import ClaimLost
from pipelines.models import ExecutorTurn, Pipeline, Stage
from pipelines.services import (
    beginning,
    claims,
    control,
    execution,
    intake,
    places,
    readying,
    rules,
    stages,
    unanswered,
)
from pipelines.types import RunResult
from teams.services.verification import verify
from tests.pipelines.factories import OPERATOR

pytestmark = pytest.mark.django_db


@pytest.fixture
def due(desk, owner):
    owner.install("quiet", binary="true", mode="passthrough", reply=False)
    rules.save_rule(name="all", match="please", calls=[{"command": "quiet"}], by=OPERATOR)

    def make() -> Pipeline:
        message = desk.message("please")
        # What the first pass puts on record of a message of plain text.
        Part.objects.create(message=message, path="1", type="text/plain", size=9, is_text=True)
        pipeline = intake.take_in(message_id=message.pk)
        assert pipeline is not None
        return pipeline

    return make


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """A process that has not met another worker yet."""
    monkeypatch.setattr(beginning, "_place", places.Place())


def begun(looked):
    with unit_of_work():
        return beginning.begin(looked)


def test_it_is_claimed_and_its_first_stage_started_in_one_move(due):
    pipeline = due()
    looked = beginning.look_ahead()
    assert looked is not None
    pipeline.refresh_from_db()
    assert pipeline.status == "planned", "a look claims nothing"

    claim = begun(looked)

    assert claim is not None
    pipeline.refresh_from_db()
    stage = pipeline.stages.get(command="quiet")
    assert (pipeline.status, pipeline.fence, pipeline.current) == ("running", claim.fence, 1)
    assert (stage.status, stage.attempt, stage.fence) == ("running", 1, claim.fence)
    assert stage.argv == looked.work.vectors
    assert pipeline.files_at is not None


def test_of_two_that_have_looked_one_begins(due):
    due()
    first, second = beginning.look_ahead(), beginning.look_ahead()
    assert first is not None
    assert second is not None

    assert begun(first) is not None
    assert begun(second) is None
    assert Stage.objects.get(command="quiet").attempt == 1


@pytest.mark.parametrize("other", [{"fence": 7}, {"status": "queued", "fence": 1}])
def test_a_pipeline_that_is_not_as_it_was_starts_no_stage_and_its_unit_goes_on(due, other):
    pipeline, kept = due(), due()
    looked = beginning.look_at(pipeline.pk)
    Pipeline.objects.filter(pk=pipeline.pk).update(**other)

    with unit_of_work():
        Pipeline.objects.filter(pk=kept.pk).update(error="on record")
        assert beginning.begin(looked) is None

    kept.refresh_from_db()
    stage = pipeline.stages.get(command="quiet")
    assert (stage.status, stage.attempt, stage.claimed_by) == ("pending", 0, "")
    assert kept.error == "on record"


@pytest.mark.django_db(transaction=True)
def test_on_a_database_that_is_a_way_off_a_pipeline_begins_and_ends_in_few_messages(due):
    """The turn, the moves with the log's head, and the events with the commit."""
    pipeline = due()
    looked = beginning.look_at(pipeline.pk)
    with transaction.atomic():
        ExecutorTurn.take()  # its row is made the first time

    with messages() as begins, unit_of_work():
        claim = beginning.begin(looked, last=True)
    with messages() as ends:
        success = stages.Success(looked.due[0], RunResult(ok=True), None)
        unanswered.end(claim, reply=looked.reply, after=success)

    pipeline.refresh_from_db()
    assert pipeline.status == "completed"
    assert verify().ok
    if connection.vendor == "postgresql":
        for texts, statements in ((begins, [2, 4, 2]), (ends, [4, 2])):
            sent = [text.split("; ") for text in texts[: len(statements)]]
            assert [len(text) for text in sent] == statements
            assert "FOR UPDATE" in sent[-2][-1]
            assert sent[-1][-1] == "COMMIT"


@contextmanager
def messages():
    """What is sent, in its order; after the commit others may follow."""
    sent = []

    def note(execute, sql, *rest):
        sent.append(sql)
        return execute(sql, *rest)

    with connection.execute_wrapper(note):
        yield sent


def test_whoever_has_lost_one_looks_beside_the_oldest_and_passes_it_over_once(
    due, settings, monkeypatch
):
    monkeypatch.setattr(places, "PATIENCE", 0.0)
    settings.PIPELINE_CONCURRENCY = 2
    oldest, second = due(), due()
    looked = beginning.look_ahead()
    assert looked is not None
    assert looked.pipeline == oldest, "a worker that is alone takes the oldest"
    Pipeline.objects.filter(pk=oldest.pk).update(fence=7)
    assert begun(looked) is None

    seen = [one.pipeline for one in (beginning.look_ahead(), beginning.look_ahead()) if one]

    assert seen == [second, oldest]


def test_what_was_cancelled_after_the_look_does_not_begin(due):
    pipeline = due()
    looked = beginning.look_ahead()
    assert looked is not None
    control.cancel(pipeline_id=pipeline.pk, by=OPERATOR)

    assert begun(looked) is None
    pipeline.refresh_from_db()
    assert pipeline.status == "cancelled"


def test_it_waits_for_its_turn_like_any_other(due, settings):
    settings.PIPELINE_CONCURRENCY = 1
    first, second = due(), due()
    looked = beginning.look_at(second.pk)
    assert looked is not None
    assert claims.claim_pipeline(first.pk) is not None

    assert begun(looked) is None
    settings.PIPELINE_CONCURRENCY = 2
    assert begun(looked) is not None


@pytest.mark.one_database
def test_a_command_that_may_not_run_is_not_begun_ahead(due, owner):
    pipeline = due()
    assert beginning.look_ahead() is not None
    owner.install("quiet", binary="false", mode="passthrough", reply=False, serial=2)

    assert beginning.look_ahead() is None
    assert execution.run(pipeline_id=pipeline.pk).status == "failed"


def test_the_end_of_one_and_the_start_of_the_next_are_one_transaction(due):
    pipelines = [due(), due()]
    units: list[list[str]] = []

    def note(unit, **facts):
        units.append([one.kind for one in unit.notes])

    unit_closing.connect(note)
    try:
        execution.run_on(pipeline_id=pipelines[0].pk)
    finally:
        unit_closing.disconnect(note)

    start = ["pipeline.running", "stage.claimed", "stage.running"]
    end = ["stage.succeeded", "stage.succeeded", "pipeline.completed"]
    assert [kinds for kinds in units if kinds] == [start, end + start, end]
    assert set(Pipeline.objects.values_list("status", flat=True)) == {"completed"}


def test_the_end_is_on_record_even_if_the_next_one_cannot_begin(due, monkeypatch):
    first, second = due(), due()
    look = beginning.look_ahead

    def stale():
        looked = look()
        Stage.objects.filter(pipeline=second, command="quiet").update(status="cancelled")
        monkeypatch.setattr(beginning, "look_ahead", look)
        return looked

    monkeypatch.setattr(beginning, "look_ahead", stale)
    execution.run_on(pipeline_id=first.pk)

    first.refresh_from_db()
    assert first.status == "completed"
    assert Stage.objects.get(pipeline=first, command="quiet").status == "succeeded"
    assert Stage.objects.get(pipeline=second, command="quiet").attempt == 0


@pytest.mark.one_database
def test_a_command_that_was_replaced_after_the_look_does_not_begin(due, owner):
    first, second = due(), due()
    looked = beginning.look_at(second.pk)
    assert looked is not None
    owner.install("quiet", binary="false", mode="passthrough", reply=False, serial=2)

    with pytest.raises(ClaimLost):
        begun(looked)

    second.refresh_from_db()
    assert (second.status, second.fence) == ("planned", 0)
    assert execution.run(pipeline_id=first.pk).error.startswith("quiet: changed")


@pytest.mark.one_database
def test_a_command_whose_time_ended_after_the_look_does_not_begin(due, owner):
    soon = timezone.now() + timedelta(minutes=1)
    owner.install(
        "quiet", binary="true", mode="passthrough", reply=False, serial=2,
        valid_until=f"{soon:%FT%TZ}",
    )  # fmt: skip
    pipeline = due()
    looked = beginning.look_at(pipeline.pk)
    assert looked is not None
    past = replace(looked.work.spec, valid_until=timezone.now())
    late = replace(looked, work=replace(looked.work, job=replace(looked.work.job, spec=past)))

    with pytest.raises(ClaimLost):
        begun(late)
    again = beginning.look_at(pipeline.pk)
    assert again is not None
    assert begun(again) is not None


@pytest.mark.parametrize("where", ["look", "begin"])
def test_the_end_is_on_record_whatever_is_wrong_with_the_next_one(due, monkeypatch, where):
    first, second = due(), due()

    def broken(*given, **named):
        raise DataError("nobody foresaw this")

    module, name = (readying, "ready") if where == "look" else (beginning, "begin")
    as_usual = getattr(module, name)

    def seldom(one, *given, **named):
        theirs = one.pipeline_id if where == "look" else one.pipeline.pk
        return (broken if theirs == second.pk else as_usual)(one, *given, **named)

    monkeypatch.setattr(module, name, seldom)
    with suppress(DataError):  # what is wrong with the second is told when it is its turn
        execution.run_on(pipeline_id=first.pk)

    first.refresh_from_db()
    assert first.status == "completed"


@pytest.mark.one_database
def test_a_queue_that_cannot_be_reached_does_not_strand_what_has_begun(due, monkeypatch):
    pipelines = [due(), due(), due()]

    def unreachable(pipeline_ids):
        raise ConnectionError("no queue")

    monkeypatch.setattr(execution.waking, "enqueue", unreachable)
    with suppress(ConnectionError):
        execution.run_on(pipeline_id=pipelines[0].pk)

    assert set(Pipeline.objects.values_list("status", flat=True)) == {"completed"}

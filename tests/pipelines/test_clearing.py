"""A pipeline's directory goes when the pipeline has ended, and not before."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from io import StringIO
from pathlib import Path
from uuid import uuid4

import pytest
from django.core.management import call_command
from django.utils import timezone

from config.timetable import TIMETABLE
from guards.services.units import unit_of_work
from pipelines import filing
from pipelines.models import Pipeline
from pipelines.services import clearing, transitions
from tests.pipelines.factories import PipelineFactory, StageFactory

pytestmark = pytest.mark.django_db

Status = Pipeline.Status


@pytest.fixture(autouse=True)
def place(settings, tmp_path: Path) -> Path:
    settings.PIPELINES_DIR = tmp_path / "pipelines"
    settings.PIPELINES_DIR.mkdir(mode=0o700)
    return settings.PIPELINES_DIR


def directory(pipeline: Pipeline) -> Path:
    made = filing.directory_of(pipeline.pk)
    made.mkdir(mode=0o700)
    (made / "file").write_bytes(b"x" * 10)
    return made


def ended(status: Status, hours: float = 0) -> Pipeline:
    return PipelineFactory(status=status, finished_at=timezone.now() - timedelta(hours=hours))


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED, Status.CANCELLED])
def test_the_directory_goes_once_the_end_is_committed(django_capture_on_commit_callbacks, status):
    pipeline = PipelineFactory(status=Status.RUNNING)
    made = directory(pipeline)

    with django_capture_on_commit_callbacks() as after, unit_of_work():
        transitions.move_pipeline(
            pipeline.pk, status, old=[Status.RUNNING], changes={"finished_at": timezone.now()}
        )
        assert made.is_dir()
    for act in after:
        act()

    assert not made.exists()


@pytest.mark.one_database
@pytest.mark.parametrize("status", [Status.QUEUED, Status.WAITING_APPROVAL])
def test_one_that_only_waits_keeps_it(django_capture_on_commit_callbacks, status):
    pipeline = PipelineFactory(status=Status.RUNNING)
    made = directory(pipeline)

    with django_capture_on_commit_callbacks(execute=True), unit_of_work():
        transitions.move_pipeline(pipeline.pk, status, old=[Status.RUNNING])

    assert made.is_dir()


def test_the_sweep_removes_what_has_ended_and_orphans_and_counts_them(place):
    gone = [directory(ended(Status.COMPLETED)), directory(ended(Status.INTERRUPTED))]
    kept = [directory(PipelineFactory(status=one)) for one in set(Status) - Pipeline.ENDED]
    orphan = place / str(uuid4())
    orphan.mkdir()
    (orphan / "a").write_bytes(b"x" * 5)
    half = place / f".{uuid4()}.0a1b2c3d.gone"
    half.mkdir()

    assert clearing.sweep() == clearing.Swept(4, 25)
    assert not any(one.exists() for one in [*gone, orphan, half])
    assert all((one / "file").exists() for one in kept)
    assert clearing.sweep() == clearing.Swept(0, 0)


@pytest.mark.one_database
def test_only_what_is_ours_is_touched(place, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (place / str(uuid4())).symlink_to(outside)
    (place / str(uuid4())).write_text("a file")
    (place / "notes").mkdir()
    (place / str(uuid4()).upper()).mkdir()
    before = sorted(place.iterdir())

    assert clearing.sweep() == clearing.Swept(0, 0)
    assert sorted(place.iterdir()) == before
    assert outside.is_dir()


@pytest.mark.one_database
def test_a_sweep_without_any_directory_removes_nothing(settings, tmp_path):
    settings.PIPELINES_DIR = tmp_path / "none"

    assert clearing.sweep() == clearing.Swept(0, 0)


def test_the_retention_period_keeps_what_has_ended_and_orphans(settings, place):
    settings.PIPELINE_FILES_RETENTION_HOURS = 2
    young, old = directory(ended(Status.FAILED, 1)), directory(ended(Status.FAILED, 3))
    orphan, old_orphan = place / str(uuid4()), place / str(uuid4())
    orphan.mkdir()
    old_orphan.mkdir()
    past = (timezone.now() - timedelta(hours=3)).timestamp()
    os.utime(old_orphan, (past, past))

    assert clearing.sweep().directories == 2
    assert young.exists() and orphan.exists()
    assert not old.exists() and not old_orphan.exists()
    assert clearing.let_go(pipeline_id=ended(Status.FAILED, 1).pk) is False


@pytest.mark.one_database
@pytest.mark.parametrize(("repeatable", "stays"), [(True, True), (False, False)])
def test_what_could_go_on_after_an_interruption_keeps_it_for_a_month(owner, repeatable, stays):
    owner.install("work", repeatable=repeatable)
    pipelines = [ended(Status.INTERRUPTED, 24 * days) for days in (29, 31)]
    for pipeline in pipelines:
        StageFactory(pipeline=pipeline, command="work", runner="cli", status="interrupted")
    made = [directory(pipeline) for pipeline in pipelines]

    clearing.sweep()

    assert [one.exists() for one in made] == [stays, False]


@pytest.mark.one_database
def test_a_failure_that_may_be_tried_again_keeps_it_too(owner):
    owner.install("work", repeatable=True)
    again, never = ended(Status.FAILED), ended(Status.FAILED)
    for pipeline, retriable in ((again, True), (never, False)):
        StageFactory(
            pipeline=pipeline, command="work", runner="cli", status="failed", retriable=retriable
        )
    kept, gone = directory(again), directory(never)

    clearing.sweep()

    assert kept.exists()
    assert not gone.exists()


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("status", "reply", "stays"),
    [
        (Status.INTERRUPTED, "interrupted", True),
        (Status.INTERRUPTED, "pending", True),
        (Status.FAILED, "failed", False),
        (Status.COMPLETED, "succeeded", False),
    ],
)
def test_one_whose_answer_alone_was_cut_off_keeps_its_files(status, reply, stays):
    pipeline = ended(status)
    StageFactory(pipeline=pipeline, command="work", runner="cli", status="succeeded")
    StageFactory(pipeline=pipeline, position=2, status=reply)
    made = directory(pipeline)

    clearing.sweep()

    assert made.exists() is stays


@pytest.mark.one_database
def test_the_command_says_what_it_removed():
    directory(ended(Status.COMPLETED))
    out = StringIO()

    call_command("sweep_files", "--json", stdout=out)

    assert json.loads(out.getvalue()) == {"directories": 1, "bytes": 10, "missions": 0}


def test_the_worker_sweeps_by_its_timetable():
    assert "pipelines.tasks.sweep_files" in {entry.task for entry in TIMETABLE}

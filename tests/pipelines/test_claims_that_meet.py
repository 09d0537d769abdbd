"""Several workers reach for the same work at the same moment, on a database they really share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipelines.models import Pipeline
from pipelines.services import claims
from teams.models import Event
from tests.databases import exit_of, forked, shared
from tests.pipelines.factories import PipelineFactory

pytestmark = pytest.mark.django_db(transaction=True)

WORKERS = 4


def test_of_many_claims_on_one_pipeline_one_succeeds(tmp_path: Path):
    with shared(tmp_path):
        pipeline = PipelineFactory()

        assert meet(tmp_path, [pipeline.pk] * WORKERS) == 1
        assert Event.objects.filter(kind="pipeline.running").count() == 1
        assert Pipeline.objects.get().fence == 1


def test_no_more_pipelines_are_claimed_at_once_than_may_run(tmp_path: Path, settings):
    settings.PIPELINE_CONCURRENCY = 2
    with shared(tmp_path):
        wanted = [PipelineFactory().pk for _ in range(WORKERS)]

        assert meet(tmp_path, wanted) == 2
        assert Pipeline.objects.filter(status="running").count() == 2
        assert Pipeline.objects.filter(status="queued").count() == WORKERS - 2


def meet(directory: Path, wanted: list) -> int:
    """Each of these claims in a process of its own, all at once; how many succeeded."""
    gate = directory / "gate"

    def claim(pipeline_id) -> None:
        while not gate.exists():
            pass
        if claims.claim_pipeline(pipeline_id) is not None:
            (directory / f"won-{os.getpid()}").touch()

    workers = [forked(lambda pipeline_id=pipeline_id: claim(pipeline_id)) for pipeline_id in wanted]
    gate.touch()
    assert [exit_of(worker) for worker in workers] == [0] * len(wanted)
    return len(list(directory.glob("won-*")))

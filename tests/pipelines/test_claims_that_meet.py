"""Several workers reach for the same work at the same moment, on a database they really share."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from guards.services.units import unit_of_work
from mail.models import Outbound
from pipelines.models import Pipeline, Stage
from pipelines.services import claims, replies
from teams.models import Event
from tests.databases import exit_of, forked, shared
from tests.pipelines.factories import PipelineFactory, StageFactory

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


@pytest.mark.only_on("postgresql")  # elsewhere nothing locks a row
def test_a_renewal_and_the_end_of_the_reply_never_wait_for_each_other(tmp_path: Path):
    """A deadlock would roll back the record of a mail that has left."""
    with shared(tmp_path):
        pipeline = PipelineFactory()
        stage = StageFactory(pipeline=pipeline)
        claim = claims.claim_pipeline(pipeline.pk)
        Stage.objects.filter(pk=stage.pk).update(
            status=Stage.Status.RUNNING, lease_until=claims.lease_end(), **claim.mine
        )
        locked, settling = tmp_path / "locked", tmp_path / "settling"

        def renew() -> None:
            with unit_of_work():
                Pipeline.objects.filter(pk=pipeline.pk).update(lease_until=claims.lease_end())
                locked.touch()
                until(settling)
                time.sleep(0.2)  # the other has come as far as it can
                Stage.objects.filter(pk=stage.pk).update(lease_until=claims.lease_end())

        def settle() -> None:
            until(locked)
            settling.touch()
            accepted = Outbound(
                origin_type="pipelines.pipeline",
                origin_id=str(pipeline.pk),
                status=Outbound.Status.ACCEPTED,
            )
            with unit_of_work():
                replies.settle(message=accepted)

        pids = [forked(renew), forked(settle)]
        assert [exit_of(pid) for pid in pids] == [0, 0]
        assert Pipeline.objects.get().status == "completed"
        assert Stage.objects.get().status == "succeeded"


def until(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


def meet(directory: Path, wanted: list) -> int:
    """Each of these claims in a process of its own, all at once; how many succeeded."""
    start, go = os.pipe()

    def claim(pipeline_id) -> None:
        os.read(start, 1)
        if claims.claim_pipeline(pipeline_id) is not None:
            (directory / f"won-{os.getpid()}").touch()

    workers = [forked(lambda pipeline_id=pipeline_id: claim(pipeline_id)) for pipeline_id in wanted]
    os.write(go, b"." * len(workers))
    assert [exit_of(worker) for worker in workers] == [0] * len(wanted)
    return len(list(directory.glob("won-*")))

"""Several workers at once: as many pipelines as may, and never two that change the same files."""

from __future__ import annotations

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest
from django.utils import timezone

from guards import process
from pipelines.models import ExecutorTurn, Mission, Pipeline, Stage
from pipelines.services import claims, control, execution, intake, rules, waking
from pipelines.types import RunResult
from tests.databases import exit_of, forked, shared
from tests.pipelines.built_ins import Asking, asking_pipeline, installed
from tests.pipelines.factories import OPERATOR, Desk, script

pytestmark = pytest.mark.django_db


def planned(desk: Desk, text: str, *write_set: str) -> UUID:
    pipeline = intake.take_in(message_id=desk.message(text).pk)
    assert pipeline is not None
    Pipeline.objects.filter(pk=pipeline.pk).update(write_set=list(write_set))
    return pipeline.pk


def drain(done: Path) -> None:
    """What one worker does: whatever is due, until nothing is."""
    while Pipeline.objects.exclude(status__in=Pipeline.ENDED).exists():
        for pipeline_id in claims.whose_turn_has_come():
            execution.run(pipeline_id=pipeline_id)
        time.sleep(0.02)
    done.touch()


def together(directory: Path, workers: int = 2) -> list[int]:
    pids = [forked(lambda n=n: drain(directory / f"done-{n}")) for n in range(workers)]
    return [exit_of(pid) for pid in pids]


@pytest.mark.django_db(transaction=True)
def test_two_workers_run_two_pipelines_at_the_same_time(
    desk, owner, server, scripts, settings, tmp_path
):
    """Each program ends only when it has seen the other: one worker alone would time out."""
    settings.PIPELINE_CONCURRENCY = 2
    for mine, other in (("left", "right"), ("right", "left")):
        lines = (
            f'touch "{tmp_path}/{mine}"; '
            f'while [ ! -e "{tmp_path}/{other}" ]; do sleep 0.02; done; echo met'
        )
        owner.install(mine, binary=script(scripts, mine, lines), timeout="20s")
        rules.save_rule(name=mine, match=mine, calls=[{"command": mine}], by=OPERATOR)
    with shared(tmp_path):
        planned(desk, "left", "house:a")
        planned(desk, "right", "house:b")

        assert together(tmp_path) == [0, 0]
        assert set(Pipeline.objects.values_list("status", flat=True)) == {"completed"}
        assert len(set(Stage.objects.values_list("claimed_by", flat=True)) - {""}) == 2


@pytest.mark.django_db(transaction=True)
@pytest.mark.fault("sister-52", "W16")
@pytest.mark.parametrize(
    ("sets", "meet"),
    [
        pytest.param((["house:docs"], ["house:docs/a"]), False, id="overlapping"),
        pytest.param(
            (["house:docs"], ["house:src"]), True, id="apart", marks=pytest.mark.one_database
        ),
    ],
)
def test_pipelines_that_change_the_same_files_never_run_beside_each_other(
    desk, owner, server, scripts, settings, tmp_path, sets, meet
):
    """A program that finds the other inside fails; apart (the control) they do find each other."""
    settings.PIPELINE_CONCURRENCY = 2
    lines = (
        f'mkdir "{tmp_path}/inside" || exit 1; n=0; '
        f'while [ $n -lt {200 if meet else 15} ] && [ ! -e "{tmp_path}/met" ]; '
        "do sleep 0.02; n=$((n+1)); done; "
        f'rmdir "{tmp_path}/inside"; echo done'
    )
    lines = lines.replace("|| exit 1", f'|| {{ touch "{tmp_path}/met"; exit 1; }}')
    owner.install("enter", binary=script(scripts, "enter", lines), timeout="20s")
    rules.save_rule(name="enter", match="enter", calls=[{"command": "enter"}], by=OPERATOR)
    with shared(tmp_path):
        for write_set in sets:
            planned(desk, "enter", *write_set)

        assert together(tmp_path) == [0, 0]
        ended = sorted(Pipeline.objects.values_list("status", flat=True))
        assert ended == (["completed", "failed"] if meet else ["completed", "completed"])


@pytest.mark.fault("sister-52", "W16")
def test_an_open_mission_of_a_waiting_pipeline_keeps_its_own_set_until_it_is_released(
    desk, settings
):
    settings.PIPELINE_CONCURRENCY = 3
    waiting, (stage, _) = asking_pipeline(desk, write_set=["house:docs", "house:src"])
    with installed(Asking([RunResult(ok=False, waiting=True)])):
        assert execution.run(pipeline_id=waiting.pk).status == "waiting_approval"
    same, _ = asking_pipeline(desk, write_set=["house:docs/a"])
    apart, _ = asking_pipeline(desk, write_set=["house:src"])
    assert claims.whose_turn_has_come() == [same.pk, apart.pk]  # the control: no mission yet
    mission = Mission.objects.create(
        pipeline=waiting,
        stage=stage,
        contract={},
        write_set=["house:docs"],
        max_usd=1,
        worker="claude",
        evaluator="system",
        command="ask",
    )

    assert claims.whose_turn_has_come() == [apart.pk]
    assert claims.claim_pipeline(same.pk) is None
    assert waking.go_on(stage_id=stage.pk, actor="operator:ada")
    assert waiting.pk in claims.whose_turn_has_come()  # its own mission is not in its way

    Mission.objects.filter(pk=mission.pk).update(released_at=timezone.now())
    assert claims.claim_pipeline(same.pk) is not None


@pytest.mark.one_database
def test_a_place_that_becomes_free_goes_to_the_oldest_that_waits(desk, settings):
    settings.PIPELINE_CONCURRENCY = 1
    first, second, third = (asking_pipeline(desk)[0] for _ in range(3))
    assert claims.claim_pipeline(first.pk) is not None
    assert claims.claim_pipeline(third.pk) is None
    assert claims.claim_pipeline(second.pk) is None
    control.cancel(pipeline_id=first.pk, by=OPERATOR)

    assert claims.whose_turn_has_come() == [second.pk]
    assert ExecutorTurn.objects.count() <= 1


@pytest.mark.one_database
@pytest.mark.fault("sister-29")
def test_fast_steps_lose_nothing_while_every_processor_is_busy():
    """A program that writes and is gone before anybody looks; the control writes nothing."""
    busy = [subprocess.Popen(["yes"], stdout=subprocess.DEVNULL) for _ in range(4)]
    try:
        with ThreadPoolExecutor(8) as threads:
            whole = list(threads.map(_three_fast_steps, range(48)))
            nothing = process.run_steps([["true"], ["cat"], ["cat"]], timeout=30)
    finally:
        for loader in busy:
            loader.kill()
            loader.wait()
    assert whole == [f"{number}\n".encode() for number in range(48)]
    assert (nothing.succeeded, nothing.stdout) == (True, b"")


def _three_fast_steps(number: int) -> bytes:
    return process.run_steps([["echo", str(number)], ["cat"], ["cat"]], timeout=30).stdout

"""What a CLI stage costs, claims and records included, beside a bare child process.

    .venv/bin/python -m bench.stage

A pipeline of stages that each run /bin/true is claimed and carried out by the real executor on a
SQLite file with full synchronisation: every start and every end is a transaction with its event.
The floor is `subprocess.run(["/bin/true"])` in the same process, in turns. The signature of a
command is checked by gpg once a minute and process, so it falls on the warm-up here and on one
stage in many there.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

STAGES = 16
ROUNDS = 12
WARM_UP = 2


def main() -> None:
    directory = Path(tempfile.mkdtemp(prefix="csb-", dir="/tmp"))
    try:
        prepare(directory)
        measure_stages()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def prepare(directory: Path) -> None:
    """A house of its own, with one signed command that keeps the pipe."""
    from bench import house

    owner = house.open_house(directory)
    house.install(owner, "nothing", binary="/bin/true", mode="passthrough")


def run(stages: int) -> float:
    """Seconds per stage of one pipeline, from its claim to its end."""
    from bench import house
    from bench.harness import time_once
    from pipelines.models import Pipeline
    from pipelines.services import execution

    pipeline = house.due_pipeline(["nothing"] * stages)
    seconds = time_once(lambda: execution.run(pipeline_id=pipeline.pk))
    ended = Pipeline.objects.get(pk=pipeline.pk)
    assert ended.status == "completed", ended.error
    return seconds / stages


def bare() -> float:
    """Seconds per bare child."""
    from bench.harness import time_once

    def children() -> None:
        for _ in range(STAGES):
            subprocess.run(["/bin/true"], check=True)

    return time_once(children) / STAGES


def measure_stages() -> None:
    from bench.harness import Benchmark, Sample

    for _ in range(WARM_UP):
        run(STAGES), run(1), bare()
    rounds = [(run(STAGES), run(1), bare()) for _ in range(ROUNDS)]
    many, one, floor = (Sample.of(list(column)) for column in zip(*rounds, strict=True))
    with Benchmark("stage") as benchmark:
        benchmark.facts["stages"] = STAGES
        benchmark.claim(
            "a cli stage, claims and records included", ours=many, floor=floor, at_most=20
        )
        benchmark.claim("a whole pipeline of one stage", ours=one, floor=floor)


if __name__ == "__main__":
    main()

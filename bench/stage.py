"""What a CLI stage costs, claims and records included, beside a bare child process.

    .venv/bin/python -m bench.stage

A pipeline of stages that each run /bin/true is claimed and carried out by the real executor on a
SQLite file with full synchronisation: every start and every end is a transaction with its event.
The floor is `subprocess.run(["/bin/true"])` in the same process, in turns. The signature of a
command is checked by gpg once a minute and process, so it falls on the warm-up here and on one
stage in many there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

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
    """A house of its own: data directory, database, owner's key."""
    os.environ |= {
        "DATA_DIR": str(directory),
        "DATABASE_URL": f"sqlite:///{directory / 'bench.sqlite3'}",
        "SECRET_KEY": "bench-only-" + "0" * 50,
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "LOG_LEVEL": "ERROR",
        "REDIS_URL": "",
        "OWNER_HANDLE": "",
        "ALLOWED_BINARIES": "/usr/bin,/bin",
    }
    from tests import keys

    owner = keys.Keys().owner
    key_file = directory / "owner.pgp"
    key_file.write_bytes(owner.public)
    os.environ |= {"OWNER_FINGERPRINT": owner.fingerprint, "OWNER_KEY_FILE": str(key_file)}

    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0, skip_checks=True)
    from teams.services import checkpoints

    checkpoints.ensure_key()
    install(owner)


def install(owner: Any) -> None:
    """One signed command that runs /bin/true and keeps the pipe."""
    from guards import documents
    from guards.types import Asker
    from pipelines.services import commands
    from tests.keys import sign_detached
    from tests.pipelines.factories import AccountFactory

    document = {
        "schema": "command/1",
        "name": "nothing",
        "serial": 1,
        "runner": "cli",
        "mode": "passthrough",
        "binary": "/bin/true",
        "reply": False,
    }
    path = Path(os.environ["DATA_DIR"]) / "nothing.json"
    signature = sign_detached(owner, documents.canonical(document)).decode()
    path.write_text(json.dumps({**document, "signature": signature}))
    outcome = commands.load_file(path, by=Asker("operator", "bench"))
    assert outcome.outcome == "loaded", outcome
    AccountFactory()


def pipeline_of(stages: int) -> Any:
    """A planned pipeline with so many stages, and its reply."""
    from mail.models import Account
    from pipelines.models import Command
    from tests.pipelines.factories import MessageFactory, PipelineFactory, StageFactory

    digest = Command.objects.get(name="nothing").digest
    pipeline = PipelineFactory(
        message=MessageFactory(account=Account.objects.first(), execution="taken")
    )
    for position in range(1, stages + 1):
        StageFactory(
            pipeline=pipeline,
            position=position,
            command="nothing",
            digest=digest,
            runner="cli",
            mode="passthrough",
        )
    StageFactory(pipeline=pipeline, position=stages + 1)
    return pipeline


def run(stages: int) -> float:
    """Seconds per stage of one pipeline, from its claim to its end."""
    from bench.harness import time_once
    from pipelines.models import Pipeline
    from pipelines.services import execution

    pipeline = pipeline_of(stages)
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

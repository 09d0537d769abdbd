"""Pipelines beside their floors: a shell's pipe, an empty queue, a bare `claude`.

    .venv/bin/python -m bench.pipelines [pipe|drain|mission …]

- **pipe**: three stages, of which the first prints one megabyte of JSON and the others copy it on:
  claims, records and validation included, against the same three processes joined by a shell's
  pipe. What is claimed is the time added, on SQLite with full synchronisation and on PostgreSQL.
- **drain**: 200 queued pipelines of one stage (`true`) drained by a real `manage.py worker` with
  two processes, against django-q2's own cluster draining 200 tasks that do nothing. With
  `PIPELINE_CONCURRENCY=8`: each of the two carries up to four out beside each other.
- **mission**: a whole mission with its walls around the real client, against the client by itself
  with the same number of turns of the same stand-in for the Messages API. Told beside it, and not
  judged: against the client with our MCP server and as many calls of it, what the client itself
  takes for MCP (a server that answers from constant bytes), and what of the mission's own records
  lies before and after the client's process (contract, configuration, result, closing: the
  dispatch goes on record while that begins).

Each part runs in a process of its own for each database, since settings hold for a process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.harness import Benchmark, Sample, time_once  # noqa: E402

PARTS = ("pipe", "drain", "mission")
DATABASES = ("sqlite", "postgres")
#: What a pipe of three stages may add, in seconds.
ADDED = {"sqlite": 0.025, "postgres": 0.040}

STAGES = 3
ROUNDS = 15
WARM_UP = 3
DRAINED, DRAINS = 200, 3
MISSIONS = 12


def main(chosen: list[str]) -> None:
    """Run the parts, each for each database, and judge what they measured."""
    unknown = sorted(set(chosen) - set(PARTS))
    if unknown:
        raise SystemExit(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    parts = chosen or list(PARTS)
    with Benchmark("pipelines") as benchmark, _postgres() as server:
        for part in parts:
            for database in DATABASES if part != "mission" else DATABASES[:1]:
                if database == "postgres" and server is None:
                    benchmark.facts[f"{part}, PostgreSQL"] = "not measured: it is not installed"
                    continue
                url = server.new_database() if database == "postgres" and server else ""
                _JUDGES[part](benchmark, database, measured(part, url))


@contextmanager
def _postgres() -> Iterator[Any]:
    """A PostgreSQL of our own (it does not wait for its disk), where one is installed."""
    from tests.servers.postgres import running_postgres
    from tests.servers.presence import find_binary

    with running_postgres() if find_binary("postgres") else nullcontext() as server:
        yield server


def measured(part: str, url: str) -> dict[str, Any]:
    """Run one part against one database in a process of its own; what it printed last."""
    directory = Path(tempfile.mkdtemp(prefix="csb-", dir="/tmp"))
    code = f"from bench import pipelines; pipelines.{part}({str(directory)!r}, {url!r})"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, check=True
        )
    except subprocess.CalledProcessError as failure:
        raise SystemExit(f"{part} ended with {failure.returncode}") from failure
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    measurements: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measurements


def tell(**measurements: Any) -> None:
    """Hand what was measured to the process that judges it."""
    print(json.dumps(measurements))


# --- three stages and a megabyte ------------------------------------------------------------------


def pipe(directory: str, url: str) -> None:
    """Seconds of each pipeline, and of each shell pipe, in turns."""
    from bench import house

    owner = house.open_house(Path(directory), database=url)
    source = Path(directory) / "megabyte.json"
    # A copy wraps what it gets once more; the last one still has to fit.
    source.write_text(json.dumps("x" * (1_000_000 - 200)))
    house.install(owner, "print", binary="cat", fixed_args=[str(source)])
    house.install(owner, "copy", binary="cat")
    for _ in range(WARM_UP):
        _through_stages(), _through_a_shell(source)
    rounds = [(_through_stages(), _through_a_shell(source)) for _ in range(ROUNDS)]
    ours, floor = (list(column) for column in zip(*rounds, strict=True))
    tell(ours=ours, floor=floor)


def _through_stages() -> float:
    from bench import house
    from pipelines.models import Pipeline
    from pipelines.services import execution

    pipeline = house.due_pipeline(["print", *["copy"] * (STAGES - 1)])
    seconds = time_once(lambda: execution.run(pipeline_id=pipeline.pk))
    ended = Pipeline.objects.get(pk=pipeline.pk)
    assert ended.status == "completed", ended.error
    return seconds


def _through_a_shell(source: Path) -> float:
    line = f"cat {source} {'| cat ' * (STAGES - 1)} > {source}.copied"
    return time_once(lambda: subprocess.run(["/bin/sh", "-c", line], check=True))


def judge_pipe(benchmark: Benchmark, database: str, found: dict[str, Any]) -> None:
    """What the stages add to the shell's pipe, in medians."""
    ours, floor = Sample.of(found["ours"]), Sample.of(found["floor"])
    allowed, added = ADDED[database], ours.median - floor.median
    benchmark.ratio(
        f"three stages with 1 MB, {database}: added, as a share of {allowed * 1000:.0f} ms",
        added / allowed,
        at_most=1.0,
        ours=ours,
        floor=floor,
        note=f"{added * 1000:.1f} ms added",
    )


# --- a queue of work ------------------------------------------------------------------------------


def drain(directory: str, url: str) -> None:
    """Seconds from the first start to the last end, of our pipelines and of empty tasks, in turns.

    The house's settings reach the processes by the environment.
    """
    from bench import house

    settings = {"PIPELINE_CONCURRENCY": "8", "QUEUE_WORKERS": "2"}
    owner = house.open_house(Path(directory), database=url, **settings)
    house.install(owner, "nothing", binary="true", mode="passthrough")
    ours, floor = [], []
    for number in range(DRAINS):
        floor.append(_drained_tasks(Path(directory) / f"moments-{number}"))
        ours.append(_drained_pipelines(Path(directory)))
    tell(ours=ours, floor=floor)


def _drained_pipelines(directory: Path) -> float:
    from bench import house
    from pipelines.models import Pipeline

    for _ in range(DRAINED):
        house.due_pipeline(["nothing"], status="queued")
    mine = Pipeline.objects.filter(status="queued")
    keys = list(mine.values_list("pk", flat=True))
    _make_statistics()
    with _process(directory, "manage.py", "worker"):
        _wait(lambda: not Pipeline.objects.exclude(status="completed").exists(), directory)
    ended = Pipeline.objects.filter(pk__in=keys)
    begun = min(ended.values_list("started_at", flat=True))
    seconds: float = (max(ended.values_list("finished_at", flat=True)) - begun).total_seconds()
    return seconds


def _make_statistics() -> None:
    """As autovacuum does within a minute: without them PostgreSQL plans for empty tables."""
    from django.db import connection

    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE")


def _drained_tasks(moments: Path) -> float:
    from django_q.tasks import async_task

    from bench import bare_queue

    for _ in range(DRAINED):
        async_task(bare_queue.nothing, str(moments))
    _make_statistics()
    with _process(moments.parent, "-m", "bench.bare_queue"):
        _wait(lambda: _lines(moments) == DRAINED, moments.parent)
    told = sorted(map(float, moments.read_text().split()))
    return told[-1] - told[0]


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@contextmanager
def _process(directory: Path, *arguments: str) -> Iterator[None]:
    """A process of the house, ended in order."""
    with (directory / "process.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


def _wait(is_done: Callable[[], bool], directory: Path) -> None:
    until = time.monotonic() + 120
    while not is_done():
        if time.monotonic() > until:
            raise SystemExit((directory / "process.log").read_text()[-2000:])
        time.sleep(0.2)


def judge_drain(benchmark: Benchmark, database: str, found: dict[str, Any]) -> None:
    """How many pipelines we end while the bare queue ends one empty task."""
    ours, floor = Sample.of(found["ours"]), Sample.of(found["floor"])
    benchmark.claim(
        f"{DRAINED} queued pipelines by 2 workers, 8 at once, {database}, against empty tasks",
        ours=ours,
        floor=floor,
        at_least=0.5,
        note=f"{DRAINED / ours.median:.0f} pipelines/s, {DRAINED / floor.median:.0f} tasks/s",
    )


# --- a mission ------------------------------------------------------------------------------------


def mission(directory: str, url: str) -> None:
    """Seconds of a stage that is a mission, and of the client by itself, in turns.

    All make three turns with the stand-in: the worker reads its contract, hands in its result and
    says that it is done; the client by itself asks our server twice who it is, or, without any
    server, reads a file twice, and says so.
    """
    from bench import house
    from tests.servers.claude import FAKE_KEY, require_claude
    from tests.servers.messages_api import MessagesApi
    from tests.servers.presence import free_port

    port = free_port()
    with MessagesApi() as api:
        owner = house.open_house(
            Path(directory),
            database=url,
            CLAUDE_BINARY=require_claude(),
            CLAUDE_BASE_URL=api.url,
            CLAUDE_API_KEY_REF="env:BENCH_API_KEY",
            BENCH_API_KEY=FAKE_KEY,
            MCP_URL=f"http://127.0.0.1:{port}/mcp",
        )
        house.install(owner, "review", **_REVIEW)
        with _process(Path(directory), "manage.py", "web", "--port", str(port)):
            from tests.servers.presence import is_listening

            _wait(lambda: is_listening("127.0.0.1", port), Path(directory))
            served = _our_server(Path(directory), port)
            with _constant_server(Path(directory), served) as constant:
                clients = _timed_clients()
                runs = (
                    lambda: _as_a_mission(api),
                    lambda: _by_itself(api, Path(directory)),
                    lambda: _by_itself(api, Path(directory), served),
                    lambda: _by_itself(api, Path(directory), constant),
                )
                for _ in range(WARM_UP):
                    [run() for run in runs]
                rounds = [[run() for run in runs] for _ in range(MISSIONS)]
    ours, floor, with_server, with_constant = (list(column) for column in zip(*rounds, strict=True))
    records = [whole - client for whole, client in zip(ours, clients[-MISSIONS:], strict=True)]
    tell(
        ours=ours,
        floor=floor,
        with_server=with_server,
        with_constant=with_constant,
        records=records,
    )


@contextmanager
def _constant_server(directory: Path, served: Path) -> Iterator[Path]:
    """A client's configuration for a server that gives the answers of ours, as constant bytes."""
    from bench import constant_mcp
    from tests.servers.presence import free_port, is_listening

    server = json.loads(served.read_text())["mcpServers"]["countersign"]
    secret = server["headers"]["Authorization"].removeprefix("Bearer ")
    answers, port = directory / "answers.json", free_port()
    answers.write_text(json.dumps(constant_mcp.learn(server["url"], secret, "whoami")))
    path = directory / "constant.json"
    server["url"] = f"http://127.0.0.1:{port}/mcp"
    path.write_text(json.dumps({"mcpServers": {"countersign": server}}))
    with _process(directory, "-m", "bench.constant_mcp", str(port), str(answers)):
        _wait(lambda: is_listening("127.0.0.1", port), directory)
        yield path


def _timed_clients() -> list[float]:
    """From now on, the seconds of each client that a mission starts, walls included."""
    from guards import process

    run, seconds = process.run, []

    def timed(*arguments: Any, **options: Any) -> Any:
        began = time.perf_counter()
        try:
            return run(*arguments, **options)
        finally:
            if options.get("follow") is not None:
                seconds.append(time.perf_counter() - began)

    process.run = timed
    return seconds


def _our_server(directory: Path, port: int) -> Path:
    """A client's configuration for our MCP server, with a token that may ask who it is."""
    from guards.services import tokens
    from guards.types import Asker

    asker = Asker("operator", "bench")
    _, secret = tokens.mint(label="bench", scopes=["messages:read"], identity=None, by=asker)
    server = {
        "type": "http",
        "url": f"http://127.0.0.1:{port}/mcp",
        "headers": {"Authorization": f"Bearer {secret}"},
    }
    path = directory / "servers.json"
    path.write_text(json.dumps({"mcpServers": {"countersign": server}}))
    return path


_REVIEW = {
    "runner": "claude",
    "prompt": "Say what the contract's input says.",
    "budget": {"rounds": 1, "max_usd": 1, "max_turns": 10},
    "output_schema": "text",
}


def _as_a_mission(api: Any) -> float:
    from bench import house
    from pipelines.models import Mission, Pipeline
    from pipelines.services import execution
    from tests.servers.messages_api import Turns, call, say

    handed_in = {"verdict": "pass", "confidence": 0.9, "prose": "Done.", "output": "done"}
    api.scripts[""] = Turns(
        call("mcp__countersign__mission_show"),
        call("mcp__countersign__mission_result", result=handed_in),
        say("Done."),
    )
    before = len(api.turns)
    pipeline = house.due_pipeline(["review"])
    seconds = time_once(lambda: execution.run(pipeline_id=pipeline.pk))
    assert len(api.turns) - before == 3, api.turns[before:]
    assert Mission.objects.get(pipeline=pipeline).status == "closed"
    ended = Pipeline.objects.get(pk=pipeline.pk)
    assert ended.status == "completed", ended.error
    return seconds


def _by_itself(api: Any, directory: Path, servers: Path | None = None) -> float:
    from django.conf import settings

    from tests.servers.claude import FAKE_KEY
    from tests.servers.messages_api import Turns, call, say

    home, note = directory / "home", directory / "note.txt"
    home.mkdir(exist_ok=True)
    note.write_text("a note\n")
    tool = "mcp__countersign__whoami" if servers else "Read"
    asks = call(tool) if servers else call(tool, file_path=str(note))
    api.scripts[""] = Turns(asks, asks, say("Done."))
    words = "-p --bare --strict-mcp-config --setting-sources= --output-format=stream-json --verbose"
    built_in = "" if servers else tool
    allowed = f"--tools={built_in} --allowedTools={tool} --permission-mode=dontAsk --max-turns=10"
    allowed += f" --mcp-config={servers}" if servers else ""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "ANTHROPIC_BASE_URL": api.url,
        "ANTHROPIC_API_KEY": FAKE_KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",
    }
    before = len(api.turns)
    argv = [settings.CLAUDE_BINARY, *words.split(), *allowed.split(), "--", "Read the note twice."]
    began = time.perf_counter()
    done = subprocess.run(argv, env=environment, cwd=directory, capture_output=True)
    seconds = time.perf_counter() - began
    assert done.returncode == 0, done.stdout[-800:]
    assert len(api.turns) - before == 3, done.stdout[-800:]
    return seconds


def judge_mission(benchmark: Benchmark, database: str, found: dict[str, Any]) -> None:
    """What contract, token, configuration, walls, result and closing add to a bare client's run."""
    ours, alone = Sample.of(found["ours"]), Sample.of(found["floor"])
    records, served = Sample.of(found["records"]), Sample.of(found["with_server"])
    constant = Sample.of(found["with_constant"])
    benchmark.ratio(
        "a mission: added to the client by itself",
        ours.median / alone.median - 1,
        at_most=0.15,
        ours=ours,
        floor=alone,
        note=f"{(ours.median - alone.median) * 1000:.0f} ms added",
    )
    benchmark.ratio(
        "a mission: added to the client with our MCP server and as many calls of it",
        ours.median / served.median - 1,
        ours=ours,
        floor=served,
        note=f"{(ours.median - served.median) * 1000:.0f} ms added: walls, contract, records",
    )
    benchmark.ratio(
        "the client's own share of MCP: added to it by a server of constant bytes",
        constant.median / alone.median - 1,
        ours=constant,
        floor=alone,
        note=f"{(constant.median - alone.median) * 1000:.0f} ms added",
    )
    benchmark.ratio(
        "a mission: its records alone, as a share of the client by itself",
        records.median / alone.median,
        ours=records,
        floor=alone,
        note=f"{records.median * 1000:.0f} ms before and after the client's process",
    )


_JUDGES = {"pipe": judge_pipe, "drain": judge_drain, "mission": judge_mission}

if __name__ == "__main__":
    main(sys.argv[1:])

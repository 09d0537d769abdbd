"""One run of the program, from its files to its end."""

from __future__ import annotations

import secrets as randomness
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.conf import settings

from guards import process, secrets
from guards.process import ProcessResult
from pipelines.runners import base
from pipelines.runners.claude import (
    command_line,
    destinations,
    egress,
    preflight,
    reception,
    sandbox,
    servers,
    surroundings,
    tools,
    workplace,
)
from pipelines.runners.claude.broker import Meter, Tally
from pipelines.runners.claude.command_line import Words
from pipelines.runners.claude.destinations import Destination
from pipelines.runners.claude.lodging import Lodging
from pipelines.runners.claude.stream import Stream
from pipelines.runners.claude.surroundings import Model, Surroundings
from pipelines.snapshots import Snapshot
from pipelines.types import Job

if TYPE_CHECKING:
    from pipelines.runners.claude.broker.exchange import Broker

#: More than any session prints: tool results and all, in bytes.
MAX_STREAM = 256 * 1024 * 1024

#: A worker may hold as much memory as its sandbox's programs want to reserve; it is not touched.
_LIMITS = process.Limits(open_files=4096)


@dataclass(frozen=True, slots=True)
class Entrance:
    """How one run begins: `token` is its one-mission token, `usd` what it may still cost.

    `dispatch` puts it on record, and makes the token count: nothing is reached before. `seconds` is
    what it has. `before` is what its workplace holds. `meter` counts what it uses of its model.
    """

    token: str
    session: str
    prompt: str
    usd: float
    seconds: float
    before: Snapshot
    meter: Meter
    dispatch: Callable[[], None]
    resumes: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """How the program ended, what it printed, what it was given, and what it used of its model."""

    process: ProcessResult
    stream: Stream
    around: Surroundings
    tally: Tally


def run(job: Job, lodging: Lodging, entrance: Entrance) -> Ended:
    """Start the program, confined where it must be, and wait for its end.

    A CountersignError means that it was not started, or could not reach anything.
    """
    from pipelines.runners.claude.broker.exchange import Broker
    from pipelines.runners.claude.broker.upstream import Upstream

    configuration = servers.configuration(job.spec)
    key = secrets.resolve(settings.CLAUDE_API_KEY_REF).reveal()
    broker = Broker(Upstream(key), entrance.meter, randomness.token_urlsafe(32))
    stream = Stream(frozenset(configuration), frozenset(tools.built_in(job.spec.tools)))
    begin = _confined if preflight.is_confined(job.spec) else _unconfined
    around, ended = begin(job, _Run(lodging, entrance, configuration, broker, key, stream))
    stream.finish()
    return Ended(ended, stream, around, entrance.meter.tally())


@dataclass(frozen=True, slots=True)
class _Run:
    """What one run has, with walls or without."""

    lodging: Lodging
    entrance: Entrance
    configuration: Mapping[str, Any]
    broker: Broker
    key: str = field(repr=False)
    stream: Stream

    def model_at(self, url: str) -> Model:
        return Model(url, self.broker.word, self.key)


def _confined(job: Job, run: _Run) -> tuple[Surroundings, ProcessResult]:
    """Behind walls, and behind shut doors at first."""
    program, entrance = preflight.find_program(), run.entrance
    urls = servers.urls(run.configuration)
    doors = destinations.allowed(urls)
    _furnish(job, run, doors)
    around = surroundings.build(
        job,
        run.lodging,
        entrance.token,
        run.model_at(destinations.MODEL_URL),
        plain=destinations.are_plain(urls),
    )
    words = command_line.build(job.spec, _words(program, run))
    walls = workplace.walls(job, run.lodging, doors, program, entrance.before)
    with sandbox.start(walls, words, shut=True, broker=run.broker) as begun:
        on_start = _receive(begun, entrance, _dispatched_first(run.configuration, entrance))
        how = _How(begun.argv, None, begun.descriptors, on_start)
        return around, _start(how, around, run)


def _unconfined(job: Job, run: _Run) -> tuple[Surroundings, ProcessResult]:
    """Without walls; the key stays outside all the same."""
    entrance = run.entrance
    _furnish(job, run, destinations.allowed(servers.urls(run.configuration)))
    with egress.on_loopback(run.broker) as url:
        around = surroundings.build(job, run.lodging, entrance.token, run.model_at(url))
        words = command_line.build(job.spec, _words(preflight.find_program(), run))
        entrance.dispatch()
        reception.require(entrance.token)
        ended = _start(_How(words, workplace.directory_of(job)), around, run)
        base.end_children(job.pipeline)
    return around, ended


def _dispatched_first(configuration: Mapping[str, Any], entrance: Entrance) -> bool:
    """Behind shut doors the program may begin unrecorded: it has nothing to do yet but to begin.

    Not where other MCP servers begin with it: those are programs, and could change the workplace.
    Nor with a session that goes on: a call may have been left in it.
    """
    if set(configuration) == {tools.OURS} and not entrance.resumes:
        return False
    entrance.dispatch()
    return True


def _receive(
    begun: sandbox.Start, entrance: Entrance, is_dispatched: bool
) -> Callable[[int], None]:
    """Its doors stay shut until its run is on record and our server has answered.

    The program needs longer to get there.
    """

    def on_start(pid: int) -> None:
        try:
            if not is_dispatched:
                entrance.dispatch()
        finally:
            begun.on_start(pid)
        reception.require(entrance.token)
        begun.open_doors()

    return on_start


def _furnish(job: Job, run: _Run, doors: tuple[Destination, ...]) -> None:
    run.lodging.furnish(
        servers=run.configuration,
        prompt=command_line.system_prompt(job.spec),
        hosts=destinations.hosts_file(doors),
    )


def _words(program: Path, run: _Run) -> Words:
    return Words(
        program=program,
        servers_file=run.lodging.servers_file,
        prompt_file=run.lodging.prompt_file,
        session=run.entrance.session,
        prompt=run.entrance.prompt,
        usd=run.entrance.usd,
        resumes=run.entrance.resumes,
    )


@dataclass(frozen=True, slots=True)
class _How:
    argv: list[str]
    directory: Path | None
    descriptors: Sequence[int] = ()
    on_start: Callable[[int], None] | None = None


def _start(how: _How, around: Surroundings, run: _Run) -> ProcessResult:
    return process.run(
        how.argv,
        timeout=run.entrance.seconds,
        env=around.variables,
        cwd=how.directory,
        max_output=MAX_STREAM,
        limits=_LIMITS,
        vouched=True,
        follow=run.stream.follow,
        pass_fds=how.descriptors,
        on_start=how.on_start,
    )

"""One run of the program, from its files to its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from guards import process
from guards.process import ProcessResult
from pipelines.runners import base
from pipelines.runners.claude import (
    command_line,
    destinations,
    preflight,
    reception,
    sandbox,
    servers,
    surroundings,
    tools,
    workplace,
)
from pipelines.runners.claude.command_line import Words
from pipelines.runners.claude.destinations import Destination
from pipelines.runners.claude.lodging import Lodging
from pipelines.runners.claude.stream import Stream
from pipelines.runners.claude.surroundings import Surroundings
from pipelines.snapshots import Snapshot
from pipelines.types import Job

#: More than any session prints: tool results and all, in bytes.
MAX_STREAM = 256 * 1024 * 1024

#: A worker may hold as much memory as its sandbox's programs want to reserve; it is not touched.
_LIMITS = process.Limits(open_files=4096)


@dataclass(frozen=True, slots=True)
class Entrance:
    """How one run begins: `token` is its one-mission token, `usd` what it may still cost.

    `dispatch` puts it on record, and makes the token count: nothing is reached before. `seconds` is
    what it has. `before` is what its workplace holds.
    """

    token: str
    session: str
    prompt: str
    usd: float
    seconds: float
    before: Snapshot
    dispatch: Callable[[], None]
    resumes: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """How the program ended, what it printed, and what it was given."""

    process: ProcessResult
    stream: Stream
    around: Surroundings


def run(job: Job, lodging: Lodging, entrance: Entrance) -> Ended:
    """Start the program, confined where it must be, and wait for its end.

    A CountersignError means that it was not started, or could not reach anything.
    """
    program = preflight.find_program()
    configuration = servers.configuration(job.spec)
    urls, is_confined = servers.urls(configuration), preflight.is_confined(job.spec)
    doors = destinations.allowed(urls)
    _furnish(job, lodging, configuration, doors)
    plain = is_confined and destinations.are_plain(urls)
    around = surroundings.build(job, lodging, entrance.token, plain=plain)
    stream = Stream(frozenset(configuration), frozenset(tools.built_in(job.spec.tools)))
    words = command_line.build(job.spec, _words(program, lodging, entrance))
    if is_confined:
        walls = workplace.walls(job, lodging, doors, program, entrance.before)
        with sandbox.start(walls, words, shut=True) as begun:
            on_start = _receive(begun, entrance, _dispatched_first(configuration, entrance))
            how = _How(begun.argv, None, begun.descriptors, on_start)
            ended = _start(how, around, stream, entrance.seconds)
    else:
        entrance.dispatch()
        reception.require(entrance.token)
        how = _How(words, workplace.directory_of(job))
        ended = _start(how, around, stream, entrance.seconds)
        base.end_children(job.pipeline)
    stream.finish()
    return Ended(ended, stream, around)


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


def _furnish(
    job: Job,
    lodging: Lodging,
    configuration: Mapping[str, Any],
    doors: tuple[Destination, ...],
) -> None:
    lodging.furnish(
        servers=configuration,
        prompt=command_line.system_prompt(job.spec),
        hosts=destinations.hosts_file(doors),
    )


def _words(program: Path, lodging: Lodging, entrance: Entrance) -> Words:
    return Words(
        program=program,
        servers_file=lodging.servers_file,
        prompt_file=lodging.prompt_file,
        session=entrance.session,
        prompt=entrance.prompt,
        usd=entrance.usd,
        resumes=entrance.resumes,
    )


@dataclass(frozen=True, slots=True)
class _How:
    argv: list[str]
    directory: Path | None
    descriptors: Sequence[int] = ()
    on_start: Callable[[int], None] | None = None


def _start(how: _How, around: Surroundings, stream: Stream, seconds: float) -> ProcessResult:
    return process.run(
        how.argv,
        timeout=seconds,
        env=around.variables,
        cwd=how.directory,
        max_output=MAX_STREAM,
        limits=_LIMITS,
        vouched=True,
        follow=stream.follow,
        pass_fds=how.descriptors,
        on_start=how.on_start,
    )

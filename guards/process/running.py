"""Running children to their end: fed, read, capped, timed, and never left behind."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from guards.exceptions import InvalidInput, ProcessFailed
from guards.process import supervisors
from guards.process.launching import Surroundings, answer, limits_of, order
from guards.process.session import Session
from guards.process.types import MAX_OUTPUT, Follower, Limits, ProcessResult


def run(
    argv: Sequence[str],
    *,
    stdin: bytes = b"",
    timeout: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | str | None = None,
    max_output: int = MAX_OUTPUT,
    on_start: Callable[[int], None] | None = None,
    limits: Limits | None = None,
    vouched: bool = False,
    follow: Follower | None = None,
    pass_fds: Sequence[int] = (),
    has_daemons: bool = False,
) -> ProcessResult:
    """Run one program, without a shell, and give back how it ended; see `run_steps`."""
    return run_steps(
        [argv],
        stdin=stdin,
        timeout=timeout,
        env=env,
        cwd=cwd,
        max_output=max_output,
        on_start=on_start,
        limits=limits,
        vouched=vouched,
        follow=follow,
        pass_fds=pass_fds,
        has_daemons=has_daemons,
    )


def run_steps(
    argvs: Sequence[Sequence[str]],
    *,
    stdin: bytes = b"",
    timeout: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | str | None = None,
    max_output: int = MAX_OUTPUT,
    on_start: Callable[[int], None] | None = None,
    limits: Limits | None = None,
    vouched: bool = False,
    follow: Follower | None = None,
    pass_fds: Sequence[int] = (),
    has_daemons: bool = False,
) -> ProcessResult:
    """Run programs at the same time, each one's output on the next one's input (DES-031).

    `stdin` feeds the first, the last one's output is the result, one time limit in seconds lies
    over all. The environment is minimal plus `env`. A non-zero exit, the time limit, or more than
    `max_output` bytes kill every process group. The end kills all that is left, also what has left
    its session, unless a program is known to have such (`has_daemons`).
    `on_start` gets each child's pid, which is its process group's too. `vouched` skips the
    allow-list: for programs that the operator or this installation named, never for a command's.
    `follow` gets the result as it comes and may end the run early (`types.Follower`). `pass_fds`
    are open files that the children get beside their standard ones.
    Raises BinaryNotAllowed, InvalidInput, ProcessFailed.
    """
    if not argvs:
        raise InvalidInput("there are no steps to run", field="argv")
    around = Surroundings(
        env or {}, cwd, limits or Limits(), timeout, vouched, pass_fds, has_daemons
    )
    session = Session(stdin, max_output=max_output, timeout=timeout, follow=follow)
    try:
        order_all(argvs, around, session)
        confirm_all(argvs, session, on_start)
        session.watch()
    finally:
        session.end()
    return session.result()


def order_all(argvs: Sequence[Sequence[str]], around: Surroundings, session: Session) -> None:
    """Have the steps started in order; of the pipes between them we keep no end."""
    supervisor = supervisors.take(limits_of(around))
    session.obey(supervisor)
    with _Pipes() as pipes:
        sink = pipes.begin(session.read_errors_from)
        upstream = pipes.begin(session.feed_into, writes=True)
        for left, argv in zip(reversed(range(len(argvs))), argvs, strict=True):
            downstream, writing = pipes.make()
            files = (upstream, writing, sink)
            order(argv, around, supervisor, files=files, is_last=not left)
            pipes.close(upstream, writing)
            upstream = downstream
        pipes.hand_over(upstream, session.read_output_from)


def confirm_all(
    argvs: Sequence[Sequence[str]],
    session: Session,
    on_start: Callable[[int], None] | None = None,
) -> None:
    """Once all steps that were ordered have started; ProcessFailed where one does not."""
    for argv in argvs:
        pid = answer(argv, session.supervisor)
        session.add(pid)
        if on_start is not None:
            on_start(pid)


class _Pipes:
    """The ends of pipes that nobody has yet, or no more: whatever happens, they are closed."""

    def __init__(self) -> None:
        self._ours: set[int] = set()

    def __enter__(self) -> _Pipes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close(*self._ours)

    def make(self) -> tuple[int, int]:
        """A new one, as `os.pipe`; ProcessFailed where there is no room for it."""
        try:
            reading, writing = os.pipe()
        except OSError as error:
            raise ProcessFailed(f"no program can be started: {error.strerror}") from error
        self._ours |= {reading, writing}
        return reading, writing

    def begin(self, take: Callable[[int], None], *, writes: bool = False) -> int:
        """A new one, one end of which is taken: the one to write into, or to read from."""
        reading, writing = self.make()
        self.hand_over(writing if writes else reading, take)
        return reading if writes else writing

    def hand_over(self, descriptor: int, take: Callable[[int], None]) -> None:
        """It is somebody else's from now on."""
        self._ours.remove(descriptor)
        take(descriptor)

    def close(self, *descriptors: int) -> None:
        """Whoever was to have a copy of these has it."""
        for descriptor in descriptors:
            self._ours.remove(descriptor)
            os.close(descriptor)

"""Running children to their end: fed, read, capped, timed, and never left behind."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from guards.exceptions import InvalidInput
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
    errors, sink = os.pipe()
    session.read_errors_from(errors)
    upstream, source = os.pipe()
    session.feed_into(source)
    with _closing(sink):
        for left, argv in zip(reversed(range(len(argvs))), argvs, strict=True):
            downstream, writing = os.pipe()
            try:
                with _closing(upstream), _closing(writing):
                    files = (upstream, writing, sink)
                    order(argv, around, supervisor, files=files, is_last=not left)
            except BaseException:
                os.close(downstream)
                raise
            upstream = downstream
    session.read_output_from(upstream)


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


@contextmanager
def _closing(descriptor: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(descriptor)

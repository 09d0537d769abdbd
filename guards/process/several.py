"""Several runs at the same time in one thread, each with its own pipes, limits and end."""

from __future__ import annotations

import selectors
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from guards.exceptions import InvalidInput
from guards.process.launching import Surroundings
from guards.process.running import confirm_all, order_all
from guards.process.session import Session
from guards.process.types import MAX_OUTPUT, Limits


class Several:
    """Runs beside each other. Use as a context: at its end nothing of them stays behind."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._going_on: dict[Session, None] = {}
        self._ordered: dict[Session, Sequence[Sequence[str]]] = {}

    def __enter__(self) -> Several:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with ExitStack() as ending:  # whatever is wrong with one, the others end
            ending.callback(self._selector.close)
            for session in list(self._going_on):
                ending.callback(self._end, session)

    def order(
        self,
        argvs: Sequence[Sequence[str]],
        *,
        stdin: bytes = b"",
        timeout: float,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        max_output: int = MAX_OUTPUT,
    ) -> Session:
        """Have a run started as `run_steps` does, with its refusals; its time begins now.

        `confirm` it before the next look at what has ended: several so start at the same time. Once
        `ended` has it, its `result` says how it ended.
        """
        if not argvs:
            raise InvalidInput("there are no steps to run", field="argv")
        around = Surroundings(env or {}, cwd, Limits(), timeout, vouched=False)
        session = Session(stdin, max_output=max_output, timeout=timeout, selector=self._selector)
        try:
            order_all(argvs, around, session)
        except BaseException:
            session.end()
            raise
        self._going_on[session] = None
        self._ordered[session] = argvs
        return session

    def confirm(self, session: Session) -> None:
        """Once it has started; ProcessFailed, and nothing is left of it, where it does not."""
        try:
            confirm_all(self._ordered.pop(session), session)
        except BaseException:
            self._end(session)
            raise

    def ended(self, seconds: float) -> list[Session]:
        """Serve all until at least one has ended, for so long at most; those that have ended.

        Each is over then: killed where it had met a limit, reaped, and all that it wrote is read.
        """
        assert not self._ordered, "what is not confirmed cannot end"  # noqa: S101
        until = time.monotonic() + seconds
        while True:
            left = max(0.0, until - time.monotonic())
            self._serve(min([left, *(one.patience for one in self._going_on)]))
            ended = [session for session in self._going_on if session.is_over()]
            if ended or not left:
                break
        for session in ended:
            self._end(session)
        return ended

    def _serve(self, seconds: float) -> None:
        ready = self._selector.select(seconds)
        for key, _ in ready:
            key.data.serve(key.fd)
        for session in dict.fromkeys(key.data for key, _ in ready):
            session.look_for_ends()

    def _end(self, session: Session) -> None:
        del self._going_on[session]
        session.end()

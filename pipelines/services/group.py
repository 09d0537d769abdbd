"""Several short pipelines beside each other in one task, with one transaction for all that moved.

Where PIPELINE_CONCURRENCY leaves each worker more than one, a task takes up its share of those that
can begin at once and end with their only stage. One transaction records the ends of all that have
ended meanwhile, and claims and starts the next ones; then their children run, watched together.
While a transaction takes its time more of them end, so the next one has more to say (group commit).

Each pipeline is still claimed, started and ended on record as by itself. One whose claim is lost
goes out of the group by itself; what does not end well goes back to the queue, where it is carried
on by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import structlog
from django.utils import timezone

from guards.exceptions import CountersignError
from guards.process import Session, Several
from guards.services.units import unit_of_work
from pipelines.exceptions import ClaimLost
from pipelines.models import Stage
from pipelines.registry import Startable, is_startable
from pipelines.runners import base
from pipelines.services import beginning, carrying, claims, files, stages, unanswered
from pipelines.services.beginning import BeforeSeveral, Looked
from pipelines.services.carrying import Task
from pipelines.services.claims import Claim
from pipelines.services.unanswered import End
from pipelines.services.watching import Watch
from pipelines.signals import stage_returned, stage_starting
from pipelines.types import Job, RunResult

log = structlog.get_logger(__name__)

#: How often a group with room looks for more, in seconds.
_LOOK_SECONDS = 0.5
#: How long ends, and the room they make, wait for those of others, in seconds.
_COMMIT_DELAY = 0.005
#: Until when a program may be about to end, in seconds since its start.
_YOUNG = 0.05
#: For how long what was looked at may begin without another look, in seconds.
_FRESH = 0.05


class Group:
    """What one task has in hand. Use: `carry_out`, inside of its `Several` and its `Watch`."""

    def __init__(self, task: Task, watch: Watch, several: Several) -> None:
        self._task = task
        self._watch = watch
        self._several = several
        self._size = claims.share()
        self._running: dict[Session, _Member] = {}
        self._ahead: list[Looked] = []
        self._ahead_at = 0.0
        self._ended: list[End] = []
        self._failed: list[_Failure] = []
        self._is_closed = False
        self._problem: Exception | None = None
        self._in_vain = 0
        self._look_at = 0.0

    def carry_out(self, first: Looked | None, wake: Callable[[int], None]) -> bool:
        """Until nothing more can begin and all that has begun is on record.

        `first` is one to begin with, looked at already; False where it does not begin. `wake` is
        told now and then how many more this group could take up itself. What nobody foresaw in one
        of them is raised once the others are through.
        """
        looked = [first] if first is not None else self._look()
        self._go_round(looked, lingers=first is None)
        has_begun = first is None or not self._in_vain
        while self._has_any or (looked and has_begun):
            wake(self._room)
            looked = self._look()
            if looked or self._ended or self._failed:
                self._collect(0.0)
                self._go_round(looked)
            else:
                self._wait()
        if self._problem is not None:
            raise self._problem
        return has_begun

    def _go_round(self, looked: list[Looked], *, lingers: bool = True) -> None:
        self._start(self._move(looked))
        self._set_aside()
        if not self._room:
            self._wait()
        elif lingers:
            self._linger()

    def _wait(self) -> None:
        """For an end, and for those of what has only just begun."""
        self._collect(_LOOK_SECONDS)
        self._linger()

    def _linger(self) -> None:
        """For a moment, so long as something has only just begun: most are short.

        What ends together goes on record together, and makes room for as many at once.
        """
        until = time.monotonic() + _COMMIT_DELAY
        while (left := until - time.monotonic()) > 0:
            young = time.monotonic() - _YOUNG
            if not any(member.began > young for member in self._running.values()):
                return
            self._collect(left)

    @property
    def _has_any(self) -> bool:
        return bool(self._running or self._ended or self._failed)

    @property
    def _room(self) -> int:
        """How many more may run beside those that do."""
        return max(0, self._size - len(self._running))

    def _look(self) -> list[Looked]:
        """The next ones, with nothing of them claimed."""
        if not self._room or not self._may_look:
            return []
        if len(self._ahead) >= self._room and time.monotonic() < self._ahead_at + _FRESH:
            looked, self._ahead = self._ahead[: self._room], self._ahead[self._room :]
            return looked
        self._look_at = time.monotonic() + _LOOK_SECONDS
        return self._look_for(self._room)

    def _look_further(self) -> None:
        """At those that may begin once there is room, while the children run."""
        if self._may_look:
            self._ahead, self._ahead_at = self._look_for(self._size), time.monotonic()

    @property
    def _may_look(self) -> bool:
        if self._is_closed or not self._task.goes_on:
            return False
        return self._in_vain <= 1 or time.monotonic() >= self._look_at

    def _look_for(self, count: int) -> list[Looked]:
        ended = {end.claim.pipeline_id for end in self._ended}
        left = self._task.seconds_left
        try:
            return beginning.look_along(count, ended=ended, seconds=left) or []
        except Exception as error:  # noqa: BLE001 - told, and the others go on
            self._stumble(error, "what is due cannot be looked at")
            return []

    def _stumble(self, error: Exception, event: str, **facts: object) -> None:
        """Nothing more begins; what is in hand goes on."""
        self._is_closed = True
        if not isinstance(error, ClaimLost):
            log.error(event, exc_info=error, **facts)

    # --- on record --------------------------------------------------------------------------------

    def _move(self, looked: list[Looked]) -> list[_Member]:
        """Record all ends, claim and start the next ones, in one transaction; which have begun.

        Where that does not work, each end goes on record by itself, and nothing more begins.
        """
        ends, self._ended = self._ended, []
        try:
            held, begun = _moved(ends, looked)
        except Exception as error:  # noqa: BLE001 - told, and the others go on
            self._stumble(error, "several pipelines do not move together")
            self._record_each(ends)
            begun = []
        else:
            for end in ends:
                if end not in held:
                    _say_lost(end.claim)
        finally:
            for end in ends:
                self._watch.let_go(end.claim)
        if looked:
            self._in_vain = 0 if begun else self._in_vain + 1
        for _, claim in begun:
            self._watch.hold(claim)
        return [_Member(claim, one, one.due[0]) for one, claim in begun]

    def _record_each(self, ends: Iterable[End]) -> None:
        for end in ends:
            with self._by_itself(end.claim):
                unanswered.end(end.claim, reply=end.reply, after=end.success)

    def _set_aside(self) -> None:
        """What did not end well is on record as that, and its pipeline back in the queue."""
        failed, self._failed = self._failed, []
        for member, error, result in failed:
            claim, running = member.claim, Stage.Status.RUNNING
            with self._by_itself(claim), unit_of_work():
                stages.fail(claim, member.stage, error, old=running, result=result)
                claims.hand_back(claim, reason="its only stage has failed")
            self._watch.let_go(claim)

    @contextmanager
    def _by_itself(self, claim: Claim) -> Iterator[None]:
        """Whatever is wrong with this one is not in the way of the others."""
        try:
            yield
        except ClaimLost:
            _say_lost(claim)
        except Exception as error:  # noqa: BLE001 - told, and the others go on
            self._problem = error
            self._stumble(error, "not on record", pipeline=str(claim.pipeline_id))

    # --- its children -----------------------------------------------------------------------------

    def _start(self, members: Iterable[_Member]) -> None:
        """All of them at the same time; while they start, a look at those that come after them."""
        ordered: list[tuple[Session, _Member]] = []
        for member in members:
            with self._in_hand(member):
                if (session := self._order(member)) is not None:
                    ordered.append((session, member))
                    self._running[session] = member
        if not self._room:
            self._look_further()
        for session, member in ordered:
            with self._in_hand(member):
                self._confirm(session, member)

    @contextmanager
    def _in_hand(self, member: _Member) -> Iterator[None]:
        """What nobody foresaw in one leaves its rows as they are, and recovery to say what was."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - told, and the others go on
            self._watch.let_go(member.claim)
            self._problem = error
            self._stumble(error, "a stage is left as it is", stage=member.stage.pk)

    def _order(self, member: _Member) -> Session | None:
        """What is wrong with its directory or its program is how the stage ends."""
        try:
            files.make_empty_at(member.looked.work.directory)
        except CountersignError as error:
            self._failed.append((member, carrying.sentence(error), None))
            return None
        stage_starting.send(**member.facts)
        try:
            return member.runner.order(member.job, member.looked.work.vectors, self._several)
        except CountersignError as error:
            self._take_refusal(member, error)
            return None

    def _confirm(self, session: Session, member: _Member) -> None:
        """Whatever is wrong, one that has not started is not waited for."""
        del self._running[session]
        try:
            self._several.confirm(session)
        except CountersignError as error:
            self._take_refusal(member, error)
        else:
            self._running[session] = member

    def _take_refusal(self, member: _Member, error: CountersignError) -> None:
        """Of a chain, steps before the one that did not start may have."""
        base.end_children(member.job.pipeline)
        stage_returned.send(**member.facts)
        result = RunResult(ok=False, error=error.detail)
        self._failed.append((member, result.error, result))

    def _collect(self, seconds: float) -> None:
        """Take in those that have ended, once at least one has, for so long at most."""
        if not self._running:
            return
        for session in self._several.ended(seconds):
            member = self._running.pop(session)
            with self._in_hand(member):
                self._take_end(member, session)

    def _take_end(self, member: _Member, session: Session) -> None:
        looked, stage = member.looked, member.stage
        result = member.runner.result(member.job, session)
        stage_returned.send(**member.facts)
        error = result.error or "it ended without a whole result"
        if result.ok and not result.incomplete and looked.reply is not None:
            work, pipe = looked.work, dict(looked.pipeline.pipe)
            try:
                files.after(work.spec, pipe, result.output, work.directory, stage.position)
            except CountersignError as refusal:
                error = carrying.sentence(refusal)
            else:
                success = stages.Success(stage, result, None, self._moment())
                self._ended.append(End(member.claim, looked.reply, success))
                return
        self._failed.append((member, error, result))

    def _moment(self) -> datetime:
        """Ends that go on record together are of one moment: their rows change alike."""
        return self._ended[0].success.at if self._ended else timezone.now()


@dataclass(frozen=True, slots=True)
class _Member:
    """One pipeline of the group under its claim; its only stage is on record as running."""

    claim: Claim
    looked: Looked
    stage: Stage
    began: float = field(default_factory=lambda: time.monotonic())

    @property
    def job(self) -> Job:
        return self.looked.work.job

    @property
    def runner(self) -> Startable:
        runner = self.looked.work.runner
        assert is_startable(runner)  # noqa: S101 - nothing else is looked at for a group
        return runner

    @property
    def facts(self) -> dict[str, Any]:
        """What the signals say of it."""
        pipeline_id = self.claim.pipeline_id
        return {"sender": Stage, "stage_id": self.stage.pk, "pipeline_id": pipeline_id}


#: A stage that did not end well: whose, why, and what came of it, where anything ran.
_Failure = tuple[_Member, str, RunResult | None]


def _moved(ends: list[End], looked: list[Looked]) -> tuple[list[End], list[tuple[Looked, Claim]]]:
    """The ends that are on record, and what has begun, in one transaction for all."""
    if not ends and not looked:
        return [], []
    with unit_of_work():
        if not looked:
            return unanswered.move_several_to_end(ends, last=True), []
        if not ends:
            return [], beginning.begin_several(looked)
        asked = BeforeSeveral(looked)
        held = unanswered.move_several_to_end(ends, then=asked.message)
        return held, beginning.begin_several(looked, asked=asked)


def _say_lost(claim: Claim) -> None:
    log.warning("stopped working on a pipeline", pipeline=str(claim.pipeline_id))

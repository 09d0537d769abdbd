"""A mission's worker from its first round to its last: dispatch, run, cost, result, gate.

It needs both: a result line of the program, and a result handed in for the round. One without the
other is incomplete. Whatever happens, the run's token dies with it, and its cost is on record as
far as anybody knows it.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any

from guards.exceptions import CountersignError
from guards.services import tokens
from guards.services.units import unit_of_work
from guards.types import SYSTEM
from pipelines import snapshots
from pipelines.exceptions import GateRefused
from pipelines.models import Mission, MissionResult
from pipelines.runners import base
from pipelines.runners.claude import command_line, lodging, outcome, running, workplace
from pipelines.runners.claude.broker import Bounds, Meter, Tally, prices
from pipelines.runners.claude.broker.usage import Tokens
from pipelines.runners.claude.lodging import Lodging
from pipelines.runners.claude.outcome import Outcome
from pipelines.runners.claude.running import Ended, Entrance
from pipelines.runners.claude.surroundings import Surroundings
from pipelines.services import missions, rows, tool_calls
from pipelines.snapshots import Snapshot
from pipelines.types import Job, MissionRule, RunResult

_GOES_ON = "Go on where you stopped. Read your contract again: it has the answers to your calls."
_AGAIN = "The last round did not pass. Read your contract again: it has what was said about it."


#: Of output that cannot be read, how much of its end is shown, in characters.
_SHOWN = 20_000


@dataclass
class Work:
    """One stage's mission being worked on: the rows as they are, and what it has cost so far.

    `runs` are those on record. `counted` are the tokens of all its runs by our own count.
    """

    job: Job
    mission: Mission
    place: Lodging
    changed: set[str]
    usd: float = 0.0
    turns: int = 0
    runs: int = 0
    counted: Tokens = field(default_factory=Tokens)
    ends_at: float = field(default=0.0)

    def carry_out(self) -> RunResult:
        """Rounds until one passes, none may follow, or a person is asked."""
        self.ends_at = time.monotonic() + self.job.spec.timeout
        while True:
            result = self._round()
            if result is not None:
                return result

    def _round(self) -> RunResult | None:
        """One run, and what it comes to in one transaction; None when another round follows."""
        directory = workplace.directory_of(self.job)
        before = snapshots.snapshot(directory)
        ended = self._run(before)
        self.changed.update(snapshots.changes(before, snapshots.snapshot(directory)))
        self.place.keep_changed(self.changed)
        came = outcome.classify(
            ended.process,
            ended.stream,
            timeout=self.job.spec.timeout,
            enough=ended.tally.enough,
        )
        with unit_of_work():
            self._count(came, ended.tally)
            if came.asks and tool_calls.is_waiting(mission=self.mission):
                missions.end_run(mission=self.mission)
                return RunResult(ok=False, waiting=True, usage=self._usage)
            return self._ended(ended, came)

    def _ended(self, ended: Ended, came: Outcome) -> RunResult | None:
        """The end of a run that waits for nobody."""
        where = {"mission_id": self.mission.pk, "round": self.mission.round}
        handed_in = next(iter(rows.find(MissionResult, where=where)), None)
        if not came.ok:
            half = handed_in is not None and ended.stream.result is None
            return self._failed(ended, came, came.error, incomplete=half)
        if handed_in is None:
            said = "the worker ended without handing in a result"
            return self._failed(ended, came, said, incomplete=True)
        return self._judged(ended, came, handed_in)

    def _run(self, before: Snapshot) -> Ended:
        """Dispatch, start, wait. Where its model was never asked, nothing was spent."""
        resumes = bool(self.mission.session_id)
        session = self.mission.session_id or str(uuid.uuid4())
        token = tokens.new_secret()
        left = self.mission.max_usd - self.mission.usd
        turns = self.job.spec.budget.max_turns if self.job.spec.budget else 1
        meter = Meter(Bounds(left, turns), prices.declared())
        entrance = Entrance(
            token=token,
            session=session,
            prompt=self._prompt(resumes),
            usd=float(left),
            seconds=max(1.0, self.ends_at - time.monotonic()),
            resumes=resumes,
            before=before,
            meter=meter,
            dispatch=partial(self._dispatch, session, token),
        )
        runs = self.runs
        try:
            return running.run(self.job, self.place, entrance)
        except CountersignError:
            if self.runs > runs:
                self._count(Outcome(ok=False), meter.tally())
            raise

    def _dispatch(self, session: str, token: str) -> None:
        self.mission, _ = missions.dispatch(mission=self.mission, session_id=session, secret=token)
        self.runs += 1

    def _prompt(self, resumes: bool) -> str:
        said = ""
        if resumes:
            asked = self.mission.tool_calls.filter(round=self.mission.round).exists()
            said = _GOES_ON if asked else _AGAIN
        return command_line.prompt(self.mission.pk, self.mission.round, said)

    def _count(self, came: Outcome, tally: Tally) -> None:
        """What the program says, or what we have counted, whichever is more.

        The program counts a session's cost over all its runs: its share is the difference.
        """
        said = Decimal(str(came.usd or 0)) - self.mission.usd
        more = max(Decimal(0), said, tally.usd or Decimal(0))
        self.counted += tally.tokens
        self.mission = missions.record_cost(
            mission=self.mission,
            usd=float(more),
            turns=came.turns,
            tokens=asdict(tally.tokens),
            is_known=is_known(came, tally, self.counted),
        )
        self.usd += float(more)
        self.turns += came.turns

    def _judged(self, ended: Ended, came: Outcome, handed_in: MissionResult) -> RunResult | None:
        if betrays(handed_in, ended.around):
            return self._failed(ended, came, "the result holds a secret that the worker was given")
        try:
            self.mission = missions.close(mission=self.mission, changed=self.changed, by=SYSTEM)
        except GateRefused as refused:
            again = refused.rule == MissionRule.VERDICT.value
            if again and self._has_time() and missions.next_round(mission=self.mission):
                self.mission.refresh_from_db()
                return None
            return self._failed(ended, came, f"{refused.rule}: {refused.detail}")
        if self.mission.status != Mission.Status.CLOSED:
            return self._failed(ended, came, self.mission.reason)
        return RunResult(
            ok=True,
            output=_output(self.job, handed_in),
            exit_code=ended.process.exit_code if not ended.process.cut_short else None,
            stderr=self._stderr(ended),
            usage=self._usage,
        )

    def _has_time(self) -> bool:
        return self.ends_at - time.monotonic() > 1.0

    def _failed(
        self, ended: Ended, came: Outcome, error: str, *, incomplete: bool = False
    ) -> RunResult:
        said = ended.around.hide_in(error)
        missions.fail(mission=self.mission, reason=said)
        return RunResult(
            ok=False,
            output=ended.around.hide_in(came.raw.decode("utf-8", "replace"))[-_SHOWN:].encode(),
            exit_code=ended.process.exit_code,
            error=said,
            stderr=self._stderr(ended),
            usage=self._usage,
            incomplete=incomplete,
            retriable=came.retriable,
        )

    def _stderr(self, ended: Ended) -> str:
        text = ended.process.stderr.decode("utf-8", "replace").replace("\0", "\ufffd")
        return ended.around.hide_in(text)[-base.STDERR_SHOWN :]

    @property
    def _usage(self) -> dict[str, float]:
        return {"turns": self.turns, "usd": round(self.usd, 6)}


def is_known(came: Outcome, tally: Tally, counted: Tokens) -> bool:
    """Whether anybody knows what a run cost.

    Nothing, where its model was never asked. Else every answer has told what it used, and either
    we know its price, or the program accounts for all that we have counted over its session.
    """
    if not tally.requests:
        return True
    if tally.unread:
        return False
    return tally.usd is not None or (came.usd is not None and came.tokens.covers(counted))


def begin(job: Job) -> Work:
    """The open mission of this stage and attempt, as its runner goes on with it."""
    (mission,) = rows.find(Mission, where={"stage_id": job.stage, "attempt": job.attempt})
    place = lodging.of(mission.pk)
    counted = (
        Tokens.of(missions.counted_tokens(mission=mission)) if mission.session_id else Tokens()
    )
    return Work(job, mission, place, place.changed_before(), counted=counted)


def _output(job: Job, handed_in: MissionResult) -> bytes:
    """What goes into the pipe, in the form that any stage writes it."""
    value: Any = handed_in.output
    if job.spec.files:
        value = {"data": value, "files": [{"path": path} for path in handed_in.files]}
    elif job.spec.output_schema == "text":
        return str(value if value is not None else "").encode()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def betrays(handed_in: MissionResult, around: Surroundings) -> bool:
    """Whether a result holds a secret: in what goes on, or in what it tells people."""
    names = ("output", "prose", "open_questions", "files", "files_changed")
    said = [getattr(handed_in, name) for name in names]
    return around.betrayed_by(json.dumps(said, ensure_ascii=False).encode())

"""A pipeline's stages as its page shows them: when each ran or waited, what was asked, what came.

Everything is read in a fixed number of queries, however many stages and missions there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.utils import timezone

from pipelines import covering, selectors
from pipelines.models import Mission, MissionResult, Pipeline, Stage, ToolCall

#: How wide the whole time is drawn, and the least of it that can still be seen.
WIDTH, NARROWEST = 1000, 6

_ICONS = {
    "succeeded": "check",
    "failed": "close",
    "interrupted": "power_off",
    "running": "play_arrow",
    "claimed": "play_arrow",
    "waiting_approval": "front_hand",
    "incomplete": "question_mark",
    "cancelled": "block",
}


@dataclass(frozen=True, slots=True)
class ShownMission:
    """A mission with its rounds' results, the newest first, and what it asked for."""

    row: Mission
    results: Sequence[MissionResult]
    questions: Sequence[ToolCall]


@dataclass(frozen=True, slots=True)
class ShownStage:
    """A stage with what its card says: how long it took, how its argv reads, its missions."""

    row: Stage
    seconds: float | None
    argv: list[list[str]]
    icon: str
    missions: Sequence[ShownMission] = ()

    @property
    def word(self) -> str:
        """Its status as chips know it: what is due is nothing to look at yet."""
        return "due" if self.row.status == Stage.Status.PENDING else self.row.status

    @property
    def turns(self) -> int:
        """How many turns its workers took."""
        return int(self.row.usage.get("turns", 0))

    @property
    def usd(self) -> float | None:
        """What its workers have cost, where they cost anything."""
        found = self.row.usage.get("usd")
        return None if found is None else float(found)


@dataclass(frozen=True, slots=True)
class Bar:
    """One stretch of time: where it begins and how wide it is, of WIDTH, and its tone."""

    x: int
    width: int
    tone: str


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the timeline: what, its stretches, when it began and how long it took."""

    name: str
    status: str
    word: str
    after: float | None
    seconds: float | None
    bars: list[Bar] = field(default_factory=list)


def shown(stage: Stage, missions: Sequence[ShownMission] = ()) -> ShownStage:
    """A stage as its card shows it."""
    seconds = None
    if stage.started_at:
        seconds = ((stage.finished_at or timezone.now()) - stage.started_at).total_seconds()
    argv = stage.argv or []
    chain = argv if argv and isinstance(argv[0], list) else [argv] if argv else []
    return ShownStage(stage, seconds, chain, _ICONS.get(stage.status, "more_horiz"), missions)


def stages_of(pipeline: Pipeline, *, with_missions: bool, is_covered: bool) -> list[ShownStage]:
    """All stages in their order, each with its missions where they may be seen.

    Covered ones tell what happened, and not what was asked and what came.
    """
    missions = _missions_of(pipeline, is_covered=is_covered) if with_missions else {}
    rows = selectors.stages_of(pipeline)
    return [
        shown(covering.stage(stage) if is_covered else stage, missions.get(stage.pk, ()))
        for stage in rows
    ]


def _missions_of(pipeline: Pipeline, *, is_covered: bool) -> Mapping[int, Sequence[ShownMission]]:
    found: defaultdict[int, list[ShownMission]] = defaultdict(list)
    rows = selectors.missions_of(pipeline).prefetch_related("results", "tool_calls")
    for mission in rows.order_by("-attempt"):
        results = sorted(mission.results.all(), key=lambda result: -result.round)
        calls = list(mission.tool_calls.all())
        if is_covered:
            mission = covering.mission(mission)
            results, calls = (
                list(map(covering.result, results)),
                list(map(covering.tool_call, calls)),
            )
        found[mission.stage_id].append(ShownMission(mission, results, calls))
    return found


def total_usage(stages: Iterable[ShownStage]) -> Mapping[str, Any] | None:
    """Turns and US dollars of all stages; None where no worker cost anything."""
    known = [stage for stage in stages if stage.usd is not None]
    if not known:
        return None
    return {
        "turns": sum(stage.turns for stage in known),
        "usd": sum(stage.usd or 0.0 for stage in known),
    }


def lines(pipeline: Pipeline, stages: Sequence[ShownStage], tones: Mapping[str, str]) -> list[Line]:
    """The wait for a worker, then each stage, on one scale from the plan to the end."""
    begin, end = pipeline.created_at, pipeline.finished_at or timezone.now()
    moments = [moment for stage in stages for moment in (stage.row.finished_at,) if moment]
    scale = _Scale(begin, max([end, *moments]))
    first = pipeline.started_at or (None if pipeline.finished_at else end)
    waiting = Line("in the queue", "queued", "", 0.0, None)
    if first is not None:
        waited = (first - begin).total_seconds()
        waiting = Line("in the queue", "queued", "", 0.0, waited, [scale.bar(begin, first, "wait")])
    return [waiting, *(_line(stage, scale, tones) for stage in stages)]


def _line(stage: ShownStage, scale: _Scale, tones: Mapping[str, str]) -> Line:
    row = stage.row
    name, word = f"{row.position}. {row.command}", row.get_status_display()
    if row.started_at is None:
        return Line(name, row.status, word, None, None)
    end = row.finished_at or scale.end
    is_waiting = row.status == Stage.Status.WAITING_APPROVAL and not stage.missions
    tone = "wait" if is_waiting else tones.get(row.status, "quiet")
    bars = [scale.bar(row.started_at, end, tone)]
    for mission in stage.missions:
        for question in mission.questions:
            bars.append(scale.bar(question.asked_at, question.answered_at or end, "wait"))
    after = (row.started_at - scale.begin).total_seconds()
    return Line(name, row.status, word, after, stage.seconds, bars)


@dataclass(frozen=True, slots=True)
class _Scale:
    begin: datetime
    end: datetime

    def bar(self, start: datetime, end: datetime, tone: str) -> Bar:
        """A stretch as it is drawn; none is too narrow to be seen, none leaves the drawing."""
        whole = max((self.end - self.begin).total_seconds(), 0.001)
        x = int(WIDTH * max((start - self.begin).total_seconds(), 0) / whole)
        x = min(x, WIDTH - NARROWEST)
        width = int(WIDTH * max((end - start).total_seconds(), 0) / whole)
        return Bar(x, min(max(width, NARROWEST), WIDTH - x), tone)

"""Several workers reach for missions at the same moment, on a database they really share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from guards.exceptions import CountersignError
from guards.models import ApiToken
from guards.types import SYSTEM, Asker
from pipelines.models import Mission, MissionResult
from pipelines.services import missions
from tests.databases import exit_of, forked, shared
from tests.pipelines.factories import OPERATOR, MissionDesk, claude

pytestmark = pytest.mark.django_db(transaction=True)


def meet(directory: Path, *acts: Callable[[], Any]) -> list[str]:
    """Each act in a process of its own, all at once; what became of each, in order."""
    start, go = os.pipe()

    def perform(number: int, act: Callable[[], Any]) -> None:
        os.read(start, 1)
        try:
            said = act()
        except CountersignError as refusal:
            said = refusal.rule or refusal.code
        (directory / f"said-{number}").write_text(str(said))

    workers = [
        forked(lambda number=number, act=act: perform(number, act))
        for number, act in enumerate(acts)
    ]
    os.write(go, b"." * len(acts))
    assert [exit_of(worker) for worker in workers] == [0] * len(acts)
    return [(directory / f"said-{number}").read_text() for number in range(len(acts))]


def test_of_missions_that_would_change_the_same_files_one_opens(tmp_path: Path) -> None:
    with shared(tmp_path):
        desks = [MissionDesk(claude(f"c{n}", write_set=["site"])) for n in range(3)]
        apart = MissionDesk(claude("apart", write_set=["docs"]))

        said = meet(tmp_path, *[desk.admit for desk in desks], apart.admit)
        assert said[:3].count("stage-must-wait") == 2
        opened = Mission.objects.filter(status="open")
        assert opened.filter(write_set=["web:site"]).count() == 1
        assert opened.count() == 2


def test_the_last_money_of_a_day_is_given_out_once(tmp_path: Path, settings: Any) -> None:
    settings.MISSION_DAILY_USD_PER_COMMAND = 2.0
    with shared(tmp_path):
        document = claude(project=..., write_set=...)
        desks = [MissionDesk(document) for _ in range(3)]

        said = meet(tmp_path, *[desk.admit for desk in desks])
        assert said.count("daily-budget") == 2
        assert Mission.objects.count() == 1


def test_one_attempt_opens_one_mission(tmp_path: Path) -> None:
    with shared(tmp_path):
        desk = MissionDesk()
        said = meet(tmp_path, desk.admit, desk.admit, desk.admit)
        assert said == [str(Mission.objects.get())] * 3


def test_closing_releasing_and_failing_at_once_end_it_once(tmp_path: Path) -> None:
    with shared(tmp_path):
        mission = MissionDesk().worked()

        meet(
            tmp_path,
            lambda: missions.close(mission=mission, changed=[], by=SYSTEM),
            lambda: missions.release(mission_id=mission.pk, reason="stuck", by=OPERATOR),
            lambda: missions.fail(mission=mission, reason="hung"),
        )
        ended = Mission.objects.get()
        kinds = set(ended.events.values_list("kind", flat=True)) & {"closed", "failed"}
        assert kinds == {str(ended.status)}
        assert not (ended.status == "closed" and ended.released_at)
        assert not ApiToken.objects.filter(revoked_at=None).exists()


def test_two_results_of_one_round_leave_one(tmp_path: Path) -> None:
    with shared(tmp_path):
        desk = MissionDesk()
        mission, worker = desk.dispatch()

        def hand_in(by: Asker, prose: str) -> MissionResult:
            document = desk.result(prose=prose)
            return missions.submit_result(mission_id=mission.pk, document=document, by=by)

        said = meet(tmp_path, *[lambda p=p: hand_in(worker, p) for p in ("one", "two", "two")])
        assert "already-decided" in said
        assert MissionResult.objects.count() == 1

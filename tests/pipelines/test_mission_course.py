"""Whatever order a mission's services are called in, what must hold of missions holds."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from guards.exceptions import CountersignError
from guards.models import ApiToken
from guards.types import SYSTEM, Asker
from pipelines import write_sets
from pipelines.models import Mission, Stage
from pipelines.services import missions
from pipelines.services.missions import budgets
from tests.exploring import explore
from tests.pipelines.factories import OPERATOR, MissionDesk, claude
from tests.pipelines.test_mission_documents import REFLECTION

pytestmark = pytest.mark.django_db

_ENDS = {"closed", "failed", "escalated", "abandoned"}
_stages = st.integers(0, 2)


class Course(RuleBasedStateMachine):
    """Three stages: the first two would change the same files, the third works elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.savepoint = transaction.atomic()
        self.savepoint.__enter__()
        sets = (["site"], ["site/en", "docs"], ["docs/other"])
        self.desks = [
            MissionDesk(claude(f"c{number}", write_set=paths)) for number, paths in enumerate(sets)
        ]
        self.ended: dict[Any, tuple[str, Any]] = {}
        self.cost = budgets.dollars(0)
        self.refusals = 0

    def teardown(self) -> None:
        transaction.set_rollback(True)
        self.savepoint.__exit__(None, None, None)

    def _try(self, act: Any, **fields: Any) -> Any:
        """What an act returns; None where it was refused, which must have changed nothing."""
        before = list(Mission.objects.order_by("pk").values())
        try:
            return act(**fields)
        except CountersignError:
            assert list(Mission.objects.order_by("pk").values()) == before
            self.refusals += 1
            return None

    def _mission(self, number: int) -> Mission | None:
        return Mission.objects.filter(stage=self.desks[number].stage).order_by("attempt").last()

    def _on(self, number: int, act: Any, **fields: Any) -> Any:
        mission = self._mission(number)
        return self._try(act, mission=mission, **fields) if mission is not None else None

    @rule(number=_stages)
    def admit(self, number: int) -> None:
        self._try(self.desks[number].admit)

    @rule(number=_stages)
    def begin_another_attempt(self, number: int) -> None:
        stage = self.desks[number].stage
        stage.attempt += 1
        Stage.objects.filter(pk=stage.pk).update(status="claimed", attempt=stage.attempt)

    @rule(number=_stages)
    def dispatch(self, number: int) -> None:
        self._on(number, missions.dispatch)

    @rule(
        number=_stages,
        verdict=st.sampled_from(["pass", "pass", "fail", "escalate"]),
        looks=st.booleans(),
    )
    def hand_in(self, number: int, verdict: str, looks: bool) -> None:
        mission = self._mission(number)
        if mission is None:
            return
        prefix = mission.token.prefix if mission.token is not None else "cs_00000000"
        more = {"reflection": REFLECTION} if looks else {}
        document = self.desks[number].result(verdict=verdict, files_changed=..., **more)
        self._try(
            missions.submit_result,
            mission_id=mission.pk,
            document=document,
            by=Asker("token", prefix),
        )

    @rule(number=_stages, look=st.sampled_from([None, REFLECTION]))
    def go_on(self, number: int, look: Any) -> None:
        self._on(number, missions.next_round, reflection=look)

    @rule(number=_stages, cents=st.integers(0, 90))
    def tell_cost(self, number: int, cents: int) -> None:
        if self._on(number, missions.record_cost, usd=cents / 100, turns=1) is not None:
            self.cost += budgets.dollars(cents / 100)

    @rule(number=_stages, inside=st.booleans())
    def close(self, number: int, inside: bool) -> None:
        path = self.desks[number].spec.write_set[0] + "/x" if inside else "elsewhere"
        self._on(number, missions.close, changed=[path], by=SYSTEM)

    @rule(number=_stages)
    def fail(self, number: int) -> None:
        self._on(number, missions.fail, reason="it failed")

    @rule(number=_stages, act=st.sampled_from([missions.release, missions.abandon]))
    def leave(self, number: int, act: Any) -> None:
        mission = self._mission(number)
        if mission is not None:
            self._try(act, mission_id=mission.pk, reason="out", by=OPERATOR)

    @rule(number=_stages, status=st.sampled_from(["failed", "succeeded", "interrupted"]))
    def end_the_stage(self, number: int, status: str) -> None:
        stage = self.desks[number].stage
        fields = {"stage_id": stage.pk, "status": status, "reason": "its end"}
        if self._try(missions.end_for_stage, **fields) is not None:
            Stage.objects.filter(pk=stage.pk).update(status=status)
            assert not Mission.objects.filter(stage=stage, status="open").exists()

    @invariant()
    def an_end_has_its_grounds_and_stays(self) -> None:
        for mission in Mission.objects.prefetch_related("results", "events"):
            ends = [event.kind for event in mission.events.all() if event.kind in _ENDS]
            assert ends == ([mission.status] if mission.status != "open" else [])
            if mission.status == "closed":
                assert mission.released_at is None
                assert (mission.round, "pass") in {
                    (result.round, result.verdict) for result in mission.results.all()
                }
            if mission.status == "abandoned":
                assert mission.dispatched_at is None
            if mission.status != "open":
                now = (mission.status, mission.closed_at)
                assert self.ended.setdefault(mission.pk, now) == now

    @invariant()
    def no_two_open_missions_may_change_the_same_files(self) -> None:
        sets = Mission.objects.filter(status="open", released_at=None).values_list("write_set")
        found = [paths for (paths,) in sets]
        for index, paths in enumerate(found):
            assert not any(write_sets.overlap(paths, other) for other in found[index + 1 :])

    @invariant()
    def rounds_follow_what_was_handed_in(self) -> None:
        for mission in Mission.objects.all():
            said = {row.round for row in mission.results.all()}
            said |= {row.round for row in mission.reflections.all()}
            assert set(range(1, mission.round)) <= said <= set(range(1, mission.round + 1))
            assert mission.round <= mission.rounds

    @invariant()
    def a_token_lives_only_with_its_open_mission(self) -> None:
        living = list(ApiToken.objects.filter(revoked_at=None).values_list("holder_id", flat=True))
        assert len(living) == len(set(living))
        open_ids = {
            str(pk) for pk in Mission.objects.filter(status="open").values_list("pk", flat=True)
        }
        assert set(living) <= open_ids

    @invariant()
    def no_cost_is_lost(self) -> None:
        told = sum((mission.usd for mission in Mission.objects.all()), budgets.dollars(0))
        assert told == self.cost


@pytest.mark.one_database
def test_what_must_hold_of_missions_holds_in_any_order() -> None:
    explore(Course, examples=6, steps=25)


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_what_must_hold_of_missions_holds_in_any_order_for_long() -> None:
    explore(Course, examples=150, steps=50)

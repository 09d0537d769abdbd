"""Several short pipelines in one task: beside each other, recorded together, each by itself."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import DataError

from guards.process import several
from guards.services.units import unit_of_work
from guards.signals import unit_closing
from mail.models import Part
from pipelines.exceptions import ClaimLost
from pipelines.models import Pipeline, Stage
from pipelines.services import (
    acknowledging,
    beginning,
    claims,
    control,
    execution,
    group,
    intake,
    places,
    recovery,
    rules,
    stages,
    unanswered,
    watching,
)
from pipelines.signals import stage_returned, stage_starting
from teams.models import Event
from teams.services import verification
from teams.signals import events_appended
from tests.databases import exit_of, forked, shared
from tests.guards.test_supervisors import is_gone
from tests.pipelines.factories import OPERATOR, script

pytestmark = pytest.mark.django_db

Due = Callable[..., Pipeline]


@pytest.fixture(autouse=True)
def three_beside_each_other(settings, monkeypatch):
    """One worker may carry out three; it has not met another one yet."""
    settings.PIPELINE_CONCURRENCY, settings.QUEUE_WORKERS = 3, 1
    monkeypatch.setattr(beginning, "_place", places.Place())


@pytest.fixture
def due(desk, owner, scripts) -> Due:
    """A due pipeline of one stage with these shell lines, which needs no reply unless told."""

    def make(name: str, lines: str = "true", *write_set: str, **fields: Any) -> Pipeline:
        usual = {"mode": "passthrough", "reply": False, "output_schema": "text"}
        owner.install(name, **{"binary": script(scripts, name, lines), **usual, **fields})
        rules.save_rule(name=name, match=name, calls=[{"command": name}], by=OPERATOR)
        return again(name, *write_set)

    def again(name: str, *write_set: str) -> Pipeline:
        message = desk.message(name)
        # What the first pass puts on record of a message of plain text.
        Part.objects.create(message=message, path="1", type="text/plain", size=9, is_text=True)
        pipeline = intake.take_in(message_id=message.pk)
        assert pipeline is not None
        Pipeline.objects.filter(pk=pipeline.pk).update(write_set=list(write_set))
        return pipeline

    make.again = again  # type: ignore[attr-defined]
    return make


def meeting(directory: Path, mine: str, *others: str) -> str:
    """Lines that end well once the others have come, too, and badly after four seconds."""
    seen = " && ".join(f'[ -e "{directory}/{other}" ]' for other in others)
    return (
        f'touch "{directory}/{mine}"; n=0; '
        f"until {seen}; do sleep 0.02; n=$((n+1)); [ $n -lt 200 ] || exit 1; done"
    )


def statuses() -> dict[str, str]:
    """How each pipeline stands, by the name of its command."""
    work = Stage.objects.exclude(command="reply").select_related("pipeline").order_by("command")
    return {stage.command: stage.pipeline.status for stage in work}


@contextmanager
def units() -> Iterator[list[list[str]]]:
    """The kinds of events of each unit that is closed meanwhile."""
    seen: list[list[str]] = []

    def note(unit: Any, **_: Any) -> None:
        seen.append([one.kind for one in unit.notes])

    unit_closing.connect(note)
    try:
        yield seen
    finally:
        unit_closing.disconnect(note)


@contextmanager
def at(moment: Any, act: Callable[..., None]) -> Iterator[None]:
    """Do this whenever the signal is sent."""
    moment.connect(act)
    try:
        yield
    finally:
        moment.disconnect(act)


def look(count: int = 3) -> Any:
    return beginning.look_along(count, ended=(), seconds=1000.0)


# --- beside each other --------------------------------------------------------------------------


def test_one_task_carries_its_share_out_at_the_same_time(due, tmp_path):
    first = due("a", meeting(tmp_path, "a", "b", "c"))
    due("b", meeting(tmp_path, "b", "a", "c"))
    due("c", meeting(tmp_path, "c", "a", "b"))

    execution.run_on(pipeline_id=first.pk)

    assert statuses() == {"a": "completed", "b": "completed", "c": "completed"}


@pytest.mark.one_database
def test_without_a_share_of_several_they_come_one_by_one(due, tmp_path, settings):
    settings.QUEUE_WORKERS = 3
    first = due("a", meeting(tmp_path, "a", "b").replace("200", "10"))
    due("b", meeting(tmp_path, "b", "a"))

    execution.run_on(pipeline_id=first.pk)

    assert claims.share() == 1
    assert statuses() == {"a": "failed", "b": "completed"}


@pytest.mark.one_database
@pytest.mark.parametrize(("concurrency", "workers", "share"), [(1, 2, 1), (8, 2, 4), (3, 2, 2)])
def test_a_worker_leaves_the_others_their_share(settings, concurrency, workers, share):
    settings.PIPELINE_CONCURRENCY, settings.QUEUE_WORKERS = concurrency, workers
    assert claims.share() == share


def test_those_that_are_due_begin_in_one_transaction_and_end_in_one(due, tmp_path):
    first = due("a", meeting(tmp_path, "a", "b", "c"))
    due("b", meeting(tmp_path, "b", "a", "c"))
    due("c", meeting(tmp_path, "c", "a", "b"))

    with units() as seen:
        execution.run_on(pipeline_id=first.pk)

    start = ["pipeline.running", "stage.claimed", "stage.running"]
    end = ["stage.succeeded", "stage.succeeded", "pipeline.completed"]
    moved = [kinds for kinds in seen if kinds]
    assert moved[:2] == [start, start * 2]
    assert sum(kinds.count("pipeline.completed") for kinds in moved) == 3
    assert all(kinds == end * (len(kinds) // 3) for kinds in moved[2:])
    assert verification.verify().ok


def test_what_is_recorded_together_reads_as_by_itself(due, settings):
    rows = []
    for share, name in ((3, "together"), (1, "alone")):
        settings.PIPELINE_CONCURRENCY = share
        pipeline = due(name, "echo said; echo complained >&2")
        execution.run_on(pipeline_id=pipeline.pk)
        pipeline.refresh_from_db()
        known = (pipeline.status, pipeline.current, pipeline.fence, pipeline.lease_until)
        work = pipeline.stages.order_by("position")
        told = ("status", "attempt", "fence", "exit_code", "output", "output_size", "stderr")
        about = Event.objects.filter(subject_id__in=[str(pk) for pk in work.values_list("pk")])
        rows.append((known, list(work.values_list(*told, "lease_until")), about.count()))
        assert all(stage.started_at <= stage.finished_at for stage in work)
        assert pipeline.finished_at is not None

    assert rows[0] == rows[1]


def test_a_long_one_stops_neither_records_nor_beginnings(due, tmp_path, settings):
    """The long one ends when the last of the others has run, which begins after two have ended."""
    settings.PIPELINE_CONCURRENCY = 2
    first = due("long", meeting(tmp_path, "long", "last"))
    due("short")
    due("shorter")
    due("last", f'touch "{tmp_path}/last"')

    execution.run_on(pipeline_id=first.pk)

    assert set(statuses().values()) == {"completed"}


@pytest.mark.one_database
@pytest.mark.parametrize(("young", "together"), [(60.0, True), (0.0, False)])
def test_an_end_waits_for_those_that_have_just_begun_alone(due, monkeypatch, young, together):
    monkeypatch.setattr(group, "_COMMIT_DELAY", 9.0)
    monkeypatch.setattr(group, "_YOUNG", young)
    first = due("longer", "sleep 1")
    due("short", "sleep 0.2")

    execution.run_on(pipeline_id=first.pk)

    ended = Pipeline.objects.values_list("status", "finished_at")
    assert {status for status, _ in ended} == {"completed"}
    assert (len({moment for _, moment in ended}) == 1) is together


@pytest.mark.one_database
def test_each_keeps_its_own_time_limit(due, tmp_path):
    first = due("slow", f"sleep 9; touch {tmp_path}/late", timeout="1s")
    due("quick", "sleep 1.5", timeout="9s")

    execution.run_on(pipeline_id=first.pk)

    assert statuses() == {"slow": "failed", "quick": "completed"}
    assert "took longer than 1 second" in Stage.objects.get(command="slow").error
    assert not (tmp_path / "late").exists()


@pytest.mark.one_database
@pytest.mark.parametrize(("fresh", "looks_again"), [(60.0, False), (0.0, True)])
def test_the_next_ones_are_looked_at_while_these_run_and_again_if_that_was_long_ago(
    due, tmp_path, settings, monkeypatch, fresh, looks_again
):
    """Each look is told with how many programs are between their start and their end."""
    settings.PIPELINE_CONCURRENCY = 2
    monkeypatch.setattr(group, "_FRESH", fresh)
    running: set[Any] = set()
    looks: list[tuple[int, list[str]]] = []
    as_usual = beginning.look_along

    def look_along(*given: Any, **named: Any) -> Any:
        looked = as_usual(*given, **named)
        looks.append((len(running), [one.due[0].command for one in looked or []]))
        return looked

    monkeypatch.setattr(beginning, "look_along", look_along)
    first = due("a", meeting(tmp_path, "a", "b"))
    due("b", meeting(tmp_path, "b", "a"))
    due("c", meeting(tmp_path, "c", "d"))
    due("d", meeting(tmp_path, "d", "c"))
    with (
        at(stage_starting, lambda stage_id, **_: running.add(stage_id)),
        at(stage_returned, lambda stage_id, **_: running.discard(stage_id)),
    ):
        execution.run_on(pipeline_id=first.pk)

    assert set(statuses().values()) == {"completed"}
    assert (2, ["c", "d"]) in looks
    assert any(count < 2 and "c" in seen for count, seen in looks) is looks_again


# --- what does not simply end well --------------------------------------------------------------


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("lines", "fields", "why"),
    [
        ("exit 3", {}, "exit code 3"),
        ("yes", {}, "more than 1 MB"),
        ("echo no json", {"output_schema": {"type": "object"}}, "JSON"),
    ],
    ids=["exit", "overflow", "form"],
)
def test_one_that_fails_goes_back_to_the_queue_and_the_others_end(due, server, lines, fields, why):
    first = due("bad", lines, **fields)
    due("good", "sleep 0.3")
    due("better")

    execution.run_on(pipeline_id=first.pk)

    assert statuses() == {"bad": "failed", "good": "completed", "better": "completed"}
    assert why in Stage.objects.get(command="bad").error
    mine = Event.objects.filter(subject_id=str(first.pk)).order_by("seq")
    kinds = list(mine.values_list("kind", flat=True))
    assert kinds[-3:] == ["pipeline.queued", "pipeline.running", "pipeline.failed"]
    assert Stage.objects.get(pipeline=first, command="bad").attempt == 1


def test_only_what_ends_by_itself_is_for_a_group_and_nobody_is_passed_over(due, settings):
    simple = due("simple")
    talking = due("talking", "echo hello", reply=True)
    due.again("simple")

    assert [one.pipeline for one in look()] == [simple]
    assert beginning.look_for_group(talking.pk, seconds=1000.0) is None
    Pipeline.objects.filter(pk=simple.pk).update(status="cancelled")
    assert look() is None, "the oldest one comes first, by itself"

    Pipeline.objects.filter(pk=simple.pk).update(status="planned")
    execution.run_on(pipeline_id=simple.pk)
    assert set(Pipeline.objects.values_list("status", flat=True)) == {"completed"}


def test_one_whose_requester_may_have_to_be_told_meanwhile_is_not_for_a_group(due, settings):
    pipeline = due("simple", timeout="60s")
    assert len(look()) == 1
    settings.ACKNOWLEDGE_AFTER_SECONDS = 90
    assert not acknowledging.may_come_due(pipeline, within=60)
    assert len(look()) == 1
    settings.ACKNOWLEDGE_AFTER_SECONDS = 30
    assert acknowledging.may_come_due(pipeline, within=60)
    assert look() is None


def test_one_that_needs_more_time_than_is_left_is_not_for_a_group(due):
    due("simple", timeout="60s")
    assert beginning.look_along(1, ended=(), seconds=60.0)
    assert beginning.look_along(1, ended=(), seconds=59.0) is None


# --- claims -------------------------------------------------------------------------------------


def test_those_that_change_the_same_files_never_run_beside_each_other(due, tmp_path):
    """A program that finds another one inside fails; one that changes other files may be there."""
    alone = f'mkdir "{tmp_path}/in" || exit 1; sleep 0.2; rmdir "{tmp_path}/in"'
    first = due("a", alone, "house:docs")
    due("b", alone, "house:docs/sub")
    due("c", f'until [ -e "{tmp_path}/in" ]; do sleep 0.01; done', "house:src", timeout="5s")

    assert len(look()) == 2, "the second one waits for the first"
    execution.run_on(pipeline_id=first.pk)

    assert set(statuses().values()) == {"completed"}


def test_a_look_asks_once_what_others_may_change_however_many_are_due(
    due, django_assert_max_num_queries
):
    pipelines = [due(name, "true", f"house:{name}") for name in "abcde"]

    with django_assert_max_num_queries(3):
        assert [*claims.free_for(5)] == [pipeline.pk for pipeline in pipelines]


def test_of_two_that_meet_only_one_is_claimed_although_both_were_looked_at(due):
    one = due("a", "true", "house:docs")
    other = due("b", "true")
    looked = look()
    for ahead in looked:
        ahead.pipeline.write_set = ["house:docs"]

    with unit_of_work():
        begun = beginning.begin_several(looked)

    assert [ahead.pipeline for ahead, _ in begun] == [one]
    other.refresh_from_db()
    assert other.status == "planned"


def test_no_more_begin_than_may(due, settings):
    for name in "abc":
        due(name)
    looked = look()
    settings.PIPELINE_CONCURRENCY = 2
    with unit_of_work():
        assert len(beginning.begin_several(looked)) == 2


def test_of_two_that_have_looked_each_pipeline_begins_once(due, settings):
    settings.PIPELINE_CONCURRENCY = 9
    for name in "abcd":
        due(name)
    mine, theirs = look(2), look(4)
    with unit_of_work():
        assert len(beginning.begin_several(mine)) == 2
    with unit_of_work():
        begun = beginning.begin_several(theirs)

    assert [one.due[0].command for one, _ in begun] == ["c", "d"]
    assert set(Stage.objects.exclude(command="reply").values_list("attempt", flat=True)) == {1}


def test_what_was_lost_before_it_begins_beside_others_starts_no_stage(due):
    due("a")
    lost = due("lost")
    looked = look()
    Pipeline.objects.filter(pk=lost.pk).update(fence=7)

    with unit_of_work():
        begun = beginning.begin_several(looked)

    assert [one.due[0].command for one, _ in begun] == ["a"]
    stage = Stage.objects.get(command="lost")
    assert (stage.status, stage.attempt, stage.claimed_by) == ("pending", 0, "")


def test_whoever_has_lost_some_prefers_others_and_passes_the_oldest_over_once(
    due, settings, monkeypatch
):
    monkeypatch.setattr(places, "PATIENCE", 0.0)
    settings.PIPELINE_CONCURRENCY, settings.QUEUE_WORKERS = 4, 2
    pipelines = [due(name) for name in "abcd"]
    looked = look(2)
    Pipeline.objects.filter(pk__in=[one.pk for one in pipelines[:2]]).update(fence=7)
    with unit_of_work():
        assert beginning.begin_several(looked) == []

    assert [one.pipeline for one in look(1)] != pipelines[:1]
    assert [one.pipeline for one in look(1)] == pipelines[:1]


def test_a_claim_that_is_lost_is_lost_for_its_own_pipeline_alone(due):
    first = due("a", "sleep 0.3")
    lost = due("lost", "sleep 0.3")
    due("c", "sleep 0.3")

    def take_away(pipeline_id: Any, **_: Any) -> None:
        if pipeline_id == lost.pk:
            Pipeline.objects.filter(pk=lost.pk).update(fence=9, claimed_by="another")

    with at(stage_starting, take_away):
        execution.run_on(pipeline_id=first.pk)

    assert statuses() == {"a": "completed", "lost": "running", "c": "completed"}
    assert Stage.objects.get(command="lost").status == "running"


def test_a_stage_that_moved_alone_takes_no_other_end_back(due):
    """The transaction for all is rolled back, and each end then goes on record by itself."""
    first = due("a", "sleep 0.3")
    broken = due("broken", "sleep 0.3")
    due("c", "sleep 0.3")

    def move_alone(pipeline_id: Any, **_: Any) -> None:
        if pipeline_id == broken.pk:
            Stage.objects.filter(pipeline=broken, command="reply").update(status="cancelled")

    with at(stage_starting, move_alone):
        execution.run_on(pipeline_id=first.pk)

    assert statuses() == {"a": "completed", "broken": "running", "c": "completed"}
    assert Stage.objects.get(command="broken").status == "running"


@pytest.mark.parametrize("where", ["look_along", "begin_several"])
def test_ends_are_on_record_whatever_is_wrong_with_the_next_ones(due, monkeypatch, where):
    first = due("a")
    due("b")
    as_usual = getattr(beginning, where)
    calls = []

    def broken(*given: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == (1 if where == "look_along" else 2):
            raise DataError("nobody foresaw this")
        return as_usual(*given, **named)

    monkeypatch.setattr(beginning, where, broken)
    execution.run_on(pipeline_id=first.pk)

    assert statuses() == {"a": "completed", "b": "completed"}


@pytest.mark.one_database
def test_a_start_that_fails_as_nobody_foresaw_is_told_once_the_others_have_ended(due, monkeypatch):
    """It is not waited for, and its rows stay as they are for recovery."""
    first = due("a", "sleep 0.2")
    due("bad")
    due("c", "sleep 0.2")
    as_usual, calls = several.confirm_all, []

    def confirm_all(argvs: Any, session: Any) -> None:
        calls.append(argvs)
        if len(calls) == 2:
            raise RuntimeError("nobody foresaw this")
        as_usual(argvs, session)

    monkeypatch.setattr(several, "confirm_all", confirm_all)
    with pytest.raises(RuntimeError, match="foresaw"):
        execution.run_on(pipeline_id=first.pk)

    assert statuses() == {"a": "completed", "bad": "running", "c": "completed"}


def test_an_end_that_cannot_be_recorded_is_told_once_the_others_are(due, monkeypatch):
    first, bad = due("a", "sleep 0.2"), due("bad", "sleep 0.2")
    due("c", "sleep 0.2")

    def together(ends: Any) -> Any:
        raise DataError("nobody foresaw this")

    by_itself = unanswered.move_to_end

    def alone(claim: Any, **named: Any) -> None:
        if claim.pipeline_id == bad.pk:
            raise DataError("nobody foresaw this")
        by_itself(claim, **named)

    monkeypatch.setattr(unanswered, "move_several_to_end", together)
    monkeypatch.setattr(unanswered, "move_to_end", alone)
    with pytest.raises(DataError):
        execution.run_on(pipeline_id=first.pk)

    assert statuses() == {"a": "completed", "bad": "running", "c": "completed"}


def test_a_cancelled_one_is_ended_and_the_others_go_on(due, monkeypatch, tmp_path):
    """Its child is ended while the others run on: it never comes to its own end."""
    monkeypatch.setattr(watching, "LOOK_EVERY", claims.timedelta(seconds=0.1))
    first = due("a", "sleep 0.3")
    long = due("long", f"sleep 20; touch {tmp_path}/late", timeout="30s")

    def cancel(pipeline_id: Any, **_: Any) -> None:
        if pipeline_id == first.pk:
            control.cancel(pipeline_id=long.pk, by=OPERATOR)

    with at(stage_returned, cancel):
        execution.run_on(pipeline_id=first.pk)

    assert statuses() == {"a": "completed", "long": "cancelled"}
    assert not (tmp_path / "late").exists()


@pytest.mark.one_database
def test_commands_that_were_replaced_after_the_look_do_not_begin(due, owner, scripts):
    due("kept")
    replaced = due("replaced")
    looked = look()
    owner.install("replaced", binary="false", mode="passthrough", reply=False, serial=2)

    with unit_of_work():
        begun = beginning.begin_several(looked)

    assert [one.due[0].command for one, _ in begun] == ["kept"]
    replaced.refresh_from_db()
    assert (replaced.status, replaced.fence) == ("planned", 0)


def test_a_stage_that_moved_after_the_look_begins_nothing_of_its_unit(due):
    due("a")
    due("b")
    looked = look()
    Stage.objects.filter(command="b").update(status="cancelled")

    with pytest.raises(ClaimLost), unit_of_work():
        beginning.begin_several(looked)

    assert set(statuses().values()) == {"planned"}


@pytest.mark.invariant(16)
def test_a_chain_that_kills_its_supervisor_while_it_starts_leaves_nothing(due, scripts, tmp_path):
    """Also what has left its session: it is known by the mark of its pipeline."""
    left = f"setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 300' > /dev/null 2>&1 &"
    waits = f"while [ ! -s {tmp_path}/pid ]; do sleep 0.01; done"
    first = {"binary": script(scripts, "killing", f"{left} {waits}; kill -9 $PPID; sleep 300")}
    chain = due("bad", binary=None, steps=[first, *[{"binary": "cat"}] * 15])
    due("good")

    execution.run_on(pipeline_id=chain.pk)

    assert statuses() == {"bad": "failed", "good": "completed"}
    assert is_gone(int((tmp_path / "pid").read_text()))


# --- crashes, and several workers -----------------------------------------------------------------


def die(**_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_before(kind: str, at_least: int) -> Callable[..., None]:
    """Before a unit is committed with so many events of that kind."""

    def look_at(unit: Any, **_: Any) -> None:
        if sum(getattr(note, "kind", "") == kind for note in unit.notes) >= at_least:
            die()

    return look_at


def die_after(kind: str, at_least: int) -> Callable[..., None]:
    """After the commit of a unit with so many of them."""

    def look_at(first: int, last: int, **_: Any) -> None:
        if Event.objects.filter(seq__range=(first, last), kind=kind).count() >= at_least:
            die()

    return look_at


class Second:
    """Dies the second time."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, **_: Any) -> None:
        self.times += 1
        if self.times == 2:
            die()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("moment", "act", "left"),
    [
        (unit_closing, die_before("stage.running", 2), "interrupted planned planned"),
        (events_appended, die_after("stage.running", 2), "interrupted interrupted interrupted"),
        (stage_starting, Second(), "interrupted interrupted interrupted"),
        (stage_returned, die, "interrupted interrupted interrupted"),
        (unit_closing, die_before("pipeline.completed", 1), "interrupted " * 3),
    ],
    ids=[
        "before-the-starts-are-committed",
        "starts-on-record",
        "about-to-run",
        "a-process-has-ended",
        "before-the-ends-are-committed",
    ],
)
def test_a_killed_worker_leaves_each_of_its_pipelines_honest(due, tmp_path, moment, act, left):
    with shared(tmp_path):
        pipelines = [
            due(name, f"{meeting(tmp_path, name, 'a', 'b', 'c')}; echo {name} >> {tmp_path}/runs")
            for name in "abc"
        ]

        def work() -> None:
            with at(moment, act):
                execution.run_on(pipeline_id=pipelines[0].pk)

        assert exit_of(forked(work)) == -signal.SIGKILL
        recovery.recover()

        assert list(statuses().values()) == left.split()
        held = Stage.objects.filter(status__in=Stage.HELD)
        assert not held.exists()
        assert verification.verify().ok
        runs = tmp_path / "runs"
        ran = runs.read_text().split() if runs.exists() else []
        assert len(ran) == len(set(ran)), "nothing runs twice"


@pytest.mark.one_database
@pytest.mark.django_db(transaction=True)
def test_ends_that_are_on_record_stay_when_the_worker_is_killed_right_after(due, tmp_path):
    with shared(tmp_path):
        pipelines = [due(name, meeting(tmp_path, name, "a", "b", "c")) for name in "abc"]

        def work() -> None:
            with at(events_appended, die_after("pipeline.completed", 1)):
                execution.run_on(pipeline_id=pipelines[0].pk)

        assert exit_of(forked(work)) == -signal.SIGKILL
        recovery.recover()

        left = statuses().values()
        assert "completed" in left
        assert set(left) <= {"completed", "interrupted"}


@pytest.mark.django_db(transaction=True)
def test_two_workers_drain_a_queue_together_and_each_runs_once(due, settings, tmp_path):
    settings.PIPELINE_CONCURRENCY, settings.QUEUE_WORKERS = 4, 2
    with shared(tmp_path):
        pipelines = [due("a", f"echo once >> {tmp_path}/runs; sleep 0.05")]
        pipelines += [due.again("a") for _ in range(15)]

        def work(mine: Pipeline, other: Pipeline) -> None:
            (tmp_path / str(mine.pk)).touch()
            while not (tmp_path / str(other.pk)).exists():
                time.sleep(0.005)
            execution.run_on(pipeline_id=mine.pk)

        first, last = pipelines[0], pipelines[-1]
        pids = [forked(lambda: work(first, last)), forked(lambda: work(last, first))]

        assert [exit_of(pid) for pid in pids] == [0, 0]
        assert set(Pipeline.objects.values_list("status", flat=True)) == {"completed"}
        assert (tmp_path / "runs").read_text().split() == ["once"] * 16
        assert verification.verify().ok


def test_moves_of_several_name_those_that_were_there(due):
    there, gone = due("a"), due("b")
    Pipeline.objects.filter(pk=gone.pk).update(status="cancelled")
    changes = {"status": Pipeline.Status.QUEUED}
    wanted = {there.pk: ({"fence": 0}, changes), gone.pk: ({"fence": 0}, changes)}

    assert stages.transitions.move_alike(Pipeline, wanted, old=Pipeline.DUE) == {there.pk}
    assert statuses() == {"a": "queued", "b": "cancelled"}

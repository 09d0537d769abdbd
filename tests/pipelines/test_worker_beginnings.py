"""A worker's program begins behind shut doors while its run goes on record, and reaches nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from django.dispatch import Signal

from guards.exceptions import NotAuthenticated
from guards.models import ApiToken
from guards.services import tokens
from guards.signals import unit_closing
from pipelines.models import Mission, MissionEvent
from pipelines.runners import base
from pipelines.services import missions
from pipelines.services.missions import budgets
from pipelines.signals import mission_ended
from pipelines.types import Job
from teams.models import Event
from teams.signals import events_appended
from tests.databases import exit_of, forked, kill_me
from tests.pipelines.factories import OPERATOR
from tests.pipelines.workers import hands_in
from tests.servers.messages_api import Turns, say

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.one_database]

DISPATCHED = "mission.dispatched"


def processes_of(job: Job) -> int:
    """How many processes its worker has."""
    mark, found = f"{base.MARK}={job.pipeline}".encode(), 0
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found += mark in (entry / "environ").read_bytes().split(b"\0")
    return found


@contextmanager
def connected(signal: Signal, look: Callable[..., None]) -> Iterator[None]:
    """Inside, `look` hears that signal."""
    signal.connect(look)
    try:
        yield
    finally:
        signal.disconnect(look)


@contextmanager
def before_the_dispatch_commits(act: Callable[[], Any]) -> Iterator[None]:
    """Inside, `act` is called when a dispatch has been written and is not committed."""

    def look(unit: Any, **_: Any) -> None:
        if any(getattr(note, "kind", "") == DISPATCHED for note in unit.notes):
            act()

    with connected(unit_closing, look):
        yield


@contextmanager
def after_the_dispatch(act: Callable[[], Any]) -> Iterator[None]:
    """Inside, `act` is called when a dispatch has been committed."""

    def look(first: int, last: int, **_: Any) -> None:
        if Event.objects.filter(seq__range=(first, last), kind=DISPATCHED).exists():
            act()

    with connected(events_appended, look):
        yield


def wait_for(what: Callable[[], Any]) -> None:
    until = time.monotonic() + 20
    while not what():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_program_that_has_begun_reaches_nothing_until_its_run_is_on_record(workshop):
    """It finds its own state as it would have left it: furnishing a HOME first would cost time."""
    workshop.api.scripts[""] = Turns(hands_in(), say("That was all."))
    job, state = workshop.job(), {}
    seen = []

    def look() -> None:
        """As soon as the program keeps a record of itself in its HOME, and a good while later."""
        home = next(workshop.home.glob("missions/*/home"))
        state["before"] = (home / ".claude.json").read_text()
        wait_for(lambda: list(home.glob(".claude/sessions/*.json")))
        time.sleep(0.3)
        seen.append((processes_of(job) > 0, list(workshop.api.requests)))

    def look_again(**_: Any) -> None:
        home = next(workshop.home.glob("missions/*/home"))
        state["after"] = (home / ".claude.json").read_text()
        state["backups"] = list(home.glob(".claude/backups/*"))

    with before_the_dispatch_commits(look), connected(mission_ended, look_again):
        result = workshop.runner.run(job)
    assert seen == [(True, [])]
    assert result.ok, result
    assert len(workshop.api.turns) == 2
    assert state == {"before": state["before"], "after": state["before"], "backups": []}


def test_where_other_programs_begin_with_it_its_run_is_on_record_first(workshop, tmp_path):
    """A server of the operator's file is a program, which could change the workplace at once."""
    servers = tmp_path / "servers.json"
    servers.write_text('{"mcpServers": {"other": {"command": "/bin/false", "args": []}}}')
    workshop.settings.MCP_SERVERS_FILE = str(servers)
    job = workshop.job(mcp_servers=["other"])
    seen: list[int] = []
    with before_the_dispatch_commits(lambda: seen.append(processes_of(job))):
        result = workshop.runner.run(job)
    assert seen == [0]
    assert "the MCP server other" in result.error


def test_a_session_that_goes_on_is_on_record_first(workshop):
    """A call may have been left in it; a new one has nothing to do before its model answers."""
    rounds = hands_in(verdict="fail", output=...), say("Not yet."), hands_in(), say("That was all.")
    workshop.api.scripts[""] = Turns(*rounds)
    job, seen = workshop.job(), []
    with before_the_dispatch_commits(lambda: seen.append(processes_of(job) > 0)):
        result = workshop.runner.run(job)
    assert result.ok, result
    assert seen == [True, False]


def test_a_mission_that_was_given_up_meanwhile_lets_nobody_out(workshop):
    """Of the program that has begun nothing is left, and nothing says that a worker was started."""
    job = workshop.job()
    mission = Mission.objects.get(stage_id=job.stage)
    missions.abandon(mission_id=mission.pk, reason="not needed any more", by=OPERATOR)
    result = workshop.runner.run(job)
    assert result.error.startswith("mission-ended")
    assert (processes_of(job), workshop.api.requests) == (0, [])
    mission.refresh_from_db()
    assert (mission.status, mission.dispatched_at) == ("abandoned", None)
    kinds = MissionEvent.objects.filter(mission=mission).values_list("kind", flat=True)
    assert list(kinds.order_by("pk")) == ["opened", "abandoned"]
    assert not ApiToken.objects.exists()
    assert not (workshop.home / "missions" / str(mission.pk)).exists()


@pytest.mark.invariant(16)
@pytest.mark.fault("sister-34")
@pytest.mark.parametrize(
    ("moment", "ends_as", "counts"),
    [(before_the_dispatch_commits, "abandoned", False), (after_the_dispatch, "failed", True)],
)
def test_a_worker_that_is_killed_while_it_begins_has_reached_nothing_and_says_so(
    workshop, moment, ends_as, counts
):
    """What it had started is gone, or is ended by recovery: bubblewrap binds itself late."""
    job = workshop.job()
    begun = workshop.home / "begun"

    def strike() -> None:
        begun.write_text(str(processes_of(job)))
        kill_me()

    def work() -> None:
        with moment(strike):
            workshop.runner.run(job)

    assert exit_of(forked(work)) == -9
    assert int(begun.read_text()) > 0
    base.end_children(str(job.pipeline))
    wait_for(lambda: processes_of(job) == 0)
    assert workshop.api.requests == []
    mission = Mission.objects.get(stage_id=job.stage)
    assert (mission.status, mission.dispatched_at is not None) == ("open", counts)
    assert ApiToken.objects.filter(revoked_at=None).exists() == counts

    missions.end_for_stage(stage_id=mission.stage_id, status="interrupted", reason="killed")
    mission.refresh_from_db()
    counted = budgets.counted_usd(Mission.objects.filter(pk=mission.pk))
    assert (mission.status, counted) == (ends_as, mission.max_usd if counts else 0)
    assert not ApiToken.objects.filter(revoked_at=None).exists()


def test_a_secret_that_a_program_has_already_counts_from_its_dispatch_on(workshop):
    job, secret = workshop.job(), tokens.new_secret()
    with pytest.raises(NotAuthenticated):
        tokens.authenticate(secret)
    mission = Mission.objects.get(stage_id=job.stage)
    mission, given = missions.dispatch(mission=mission, secret=secret)
    assert given == secret
    assert tokens.authenticate(secret) == mission.token
    assert secret.startswith(f"{mission.token.prefix}_")

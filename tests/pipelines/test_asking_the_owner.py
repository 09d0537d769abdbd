"""The real client asks the owner, is told no or yes, and goes on in the same session."""

from __future__ import annotations

from typing import Any

import pytest

from approvals.services import approvals, artifacts, holds, permissions
from pipelines.models import Mission, Stage, ToolCall
from pipelines.runners.claude import lodging
from pipelines.types import Job, RunResult
from tests.pipelines.factories import OPERATOR
from tests.pipelines.workers import SHOW, Workshop, hands_in, reads, shell
from tests.servers.messages_api import Turns, say

pytestmark = pytest.mark.django_db(transaction=True)

BUILD = "touch /tmp/built && echo it is built"
REMOVE = "touch /tmp/removed && echo it is gone"


@pytest.fixture
def workshop(workshop: Workshop) -> Workshop:
    """It can also seal what it asks."""
    artifacts.ensure_key()
    return workshop


def goes_on(workshop: Workshop, job: Job) -> RunResult:
    """What the executor does once the owner has answered: the same attempt, prepared again."""
    workshop.runner.prepare(job)
    return workshop.runner.run(job)


def opened() -> Any:
    call = ToolCall.objects.get(state="waiting")
    assert call.hold_id is not None
    return holds.open_for_review(hold_id=call.hold_id, by=OPERATOR)


@pytest.mark.one_database
@pytest.mark.fault("runner-04", "sister-33")
def test_a_worker_asks_is_told_no_asks_for_less_is_allowed_and_ends(workshop: Workshop) -> None:
    workshop.api.scripts[""] = Turns(
        reads(), shell(REMOVE),
        reads(), shell(REMOVE), shell(BUILD),
        shell(BUILD), hands_in(output="built"), say("That was all."),
    )  # fmt: skip
    job = workshop.job(tools=["Bash(true)"])

    first = workshop.runner.run(job)
    assert (first.ok, first.waiting, first.incomplete) == (False, True, False)
    mission = Mission.objects.get(stage_id=job.stage)
    assert (mission.status, bool(mission.session_id)) == ("open", True)
    home = lodging.of(mission.pk).home
    assert list(home.rglob(f"{mission.session_id}.jsonl")), "the session is kept for the answer"
    first_token = mission.token
    assert first_token is not None

    approvals.reject(approval_id=opened().pk, by=OPERATOR, via="console", reason="never remove")
    second = goes_on(workshop, job)
    assert second.waiting
    told = [one for one in workshop.api.turns[-1].results if one.tool == SHOW][-1]
    assert told.value["answers"][0]["reason"] == "never remove"
    assert "never remove" in workshop.told()[-1], "asking again is answered with the reason"

    approval = opened()
    permissions.permit(approval_id=approval.pk, by=OPERATOR, via="console", digest=approval.digest)
    third = goes_on(workshop, job)

    assert (third.ok, third.output) == (True, b"built"), third
    assert workshop.told()[-1] == "it is built"
    states = ToolCall.objects.order_by("asked_at").values_list("input__command", "state")
    assert list(states) == [(REMOVE, "rejected"), (BUILD, "used")]
    mission.refresh_from_db()
    assert mission.status == Mission.Status.CLOSED
    assert float(mission.usd) == pytest.approx(
        sum(result.usage["usd"] for result in (first, second, third))
    ), "a session's cost counts once"
    costs = mission.events.filter(kind__startswith="cost").values_list("kind", flat=True)
    assert list(costs) == ["cost"] * 3, "what the client accounts for is compared over all runs"
    first_token.refresh_from_db()
    assert first_token.revoked_at is not None and mission.token_id != first_token.pk
    assert not home.exists()
    assert Stage.objects.get(pk=job.stage).attempt == 1

"""A worker asks the owner: one use of exactly what was shown; a no is told, with its reason."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connections
from django.test import Client
from django.urls import reverse

from approvals import selectors
from approvals.exceptions import ApprovalSuperseded
from approvals.models import Approval, Effect, Hold
from approvals.services import approvals, artifacts, holds, permissions
from pipelines import tools
from pipelines.exceptions import MissionRefused
from pipelines.models import Mission, MissionEvent, Pipeline, Stage, ToolCall
from pipelines.services import missions, tool_calls
from pipelines.services.tool_calls import Answer
from teams.models import Event
from tests.databases import shared
from tests.pipelines.factories import OPERATOR, MissionDesk, claude

pytestmark = pytest.mark.django_db

CALL = {"command": "deploy site --now", "description": "publish"}


class Worker(MissionDesk):
    """A mission whose worker runs, or waits."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.mission, self.asker = self.dispatch()

    def ask(self, tool: str = "Bash", **given: Any) -> Answer:
        return tool_calls.ask(
            mission_id=self.mission.pk, tool=tool, given=given or CALL, by=self.asker
        )

    def wait(self) -> None:
        """Its run has ended, and the stage waits for a person."""
        Stage.objects.filter(pk=self.stage.pk).update(
            status=Stage.Status.WAITING_APPROVAL, lease_until=None
        )
        Pipeline.objects.filter(pk=self.pipeline.pk).update(status=Pipeline.Status.WAITING_APPROVAL)

    def stage_status(self) -> str:
        return str(Stage.objects.values_list("status", flat=True).get(pk=self.stage.pk))

    def opened(self) -> Approval:
        """The newest question, opened for review."""
        call = self.mission.tool_calls.order_by("-asked_at")[0]
        assert call.hold_id is not None
        return holds.open_for_review(hold_id=call.hold_id, by=OPERATOR)

    def allow(self) -> Approval:
        approval = self.opened()
        return permissions.permit(
            approval_id=approval.pk, by=OPERATOR, via="console", digest=approval.digest
        )

    def reject(self, reason: str) -> None:
        approvals.reject(approval_id=self.opened().pk, by=OPERATOR, via="console", reason=reason)

    def states(self) -> list[str]:
        calls = ToolCall.objects.filter(mission=self.mission).order_by("asked_at")
        return list(calls.values_list("state", flat=True))


@pytest.fixture
def worker() -> Worker:
    artifacts.ensure_key()
    return Worker()


@pytest.mark.one_database
def test_a_call_outside_its_own_tools_waits_for_a_person(worker: Worker) -> None:
    answer = worker.ask()

    assert not answer.allowed and answer.interrupt
    assert answer.document(CALL)["behavior"] == "deny"
    hold = Hold.objects.get(kind="pipelines.tool-call")
    assert (hold.state, hold.requested_by) == ("waiting", str(worker.asker))
    assert worker.states() == ["waiting"]
    assert tool_calls.is_waiting(mission=worker.mission)
    assert not tool_calls.is_answered(worker.stage.pk)


def test_allowed_once_means_that_call_once_and_no_effect(worker: Worker) -> None:
    worker.ask()
    worker.wait()
    approval = worker.allow()

    assert worker.stage_status() == Stage.Status.PENDING
    assert tool_calls.is_answered(worker.stage.pk)
    used, again = worker.ask(), worker.ask()

    assert used.document(CALL) == {"behavior": "allow", "updatedInput": CALL}
    assert not again.allowed and again.interrupt
    approval.refresh_from_db()
    assert approval.state == Approval.State.CONSUMED
    assert worker.states() == ["used", "waiting"]
    assert not Effect.objects.exists()


@pytest.mark.one_database
@pytest.mark.invariant(18)
@pytest.mark.fault("approval-02")
@pytest.mark.parametrize(
    "other",
    [
        {"command": "deploy site --now ", "description": "publish"},
        {"command": "deploy site --now", "description": "publis"},
        {"command": "deploy site --now"},
        {**CALL, "run_in_background": True},
    ],
)
def test_a_call_changed_by_one_byte_is_another_question(
    worker: Worker, other: dict[str, Any]
) -> None:
    worker.ask()
    worker.allow()

    changed = worker.ask(**other)

    assert not changed.allowed and changed.interrupt
    assert worker.ask().allowed
    assert worker.states() == ["used", "waiting"]


@pytest.mark.one_database
def test_the_same_input_of_another_tool_is_another_question(worker: Worker) -> None:
    worker.ask()
    worker.allow()

    assert not worker.ask(tool="Write", **CALL).allowed


@pytest.mark.one_database
def test_a_yes_is_for_one_mission_alone(worker: Worker) -> None:
    """Another worker that asks for the very same call, and one that carries the approval away."""
    other = Worker(document=claude("announce", project="press", write_set=["news"]))
    worker.ask()
    other.ask()
    approval = worker.allow()

    assert not other.ask().allowed
    stolen = other.mission.tool_calls.get()
    stolen_hold = worker.mission.tool_calls.get().hold
    ToolCall.objects.filter(pk=stolen.pk).update(state="allowed", hold=stolen_hold)
    assert not other.ask().allowed
    approval.refresh_from_db()
    assert approval.state == Approval.State.APPROVED
    assert worker.ask().allowed


def test_a_row_that_says_allowed_is_not_enough(worker: Worker) -> None:
    worker.ask()
    ToolCall.objects.update(state="allowed")

    assert not worker.ask().allowed


@pytest.mark.one_database
@pytest.mark.fault("approval-04")
def test_a_no_is_told_with_its_reason_and_not_asked_again(worker: Worker) -> None:
    worker.ask()
    worker.wait()
    worker.reject("not before the holidays")

    again = worker.ask()

    assert worker.stage_status() == Stage.Status.PENDING
    assert again == Answer(False, "the owner did not allow this: not before the holidays")
    assert worker.states() == ["rejected"]
    assert worker.mission.token is not None
    told = missions.show(mission_id=worker.mission.pk, token=worker.mission.token)["answers"]
    assert [(one["state"], one["reason"], one["input"]) for one in told] == [
        ("rejected", "not before the holidays", CALL)
    ]
    assert Hold.objects.filter(state="waiting").count() == 0
    assert not Effect.objects.exists()


def test_the_stage_goes_on_once_everything_asked_is_answered(worker: Worker) -> None:
    worker.ask()
    worker.ask(command="another")
    worker.wait()

    worker.reject("no")
    assert worker.stage_status() == Stage.Status.WAITING_APPROVAL
    first = worker.mission.tool_calls.order_by("asked_at")[0]
    opened = holds.open_for_review(hold_id=str(first.hold_id), by=OPERATOR)
    permissions.permit(approval_id=opened.pk, by=OPERATOR, via="console", digest=opened.digest)

    assert worker.stage_status() == Stage.Status.PENDING


@pytest.mark.one_database
def test_an_answer_before_the_stage_waits_is_not_lost(worker: Worker) -> None:
    assert not tool_calls.is_waiting(mission=worker.mission)
    worker.ask()
    worker.allow()

    assert worker.stage_status() == Stage.Status.CLAIMED
    assert tool_calls.is_waiting(mission=worker.mission), "its run ended for a question"
    assert tool_calls.is_answered(worker.stage.pk)
    missions.dispatch(mission=worker.mission)
    assert not tool_calls.is_waiting(mission=worker.mission), "the next run has asked nothing"


@pytest.mark.one_database
def test_nobody_answers_in_time_and_the_worker_is_told(worker: Worker, settings: Any) -> None:
    worker.ask()
    worker.wait()
    assert tool_calls.expire_due() == 0

    settings.TOOL_CALL_APPROVAL_DAYS = 0
    assert tool_calls.expire_due() == 1
    assert tool_calls.expire_due() == 0

    assert worker.states() == ["expired"]
    assert worker.stage_status() == Stage.Status.PENDING
    assert worker.ask().message.startswith("nobody answered in time")


@pytest.mark.one_database
def test_a_question_stays_open_for_its_days_once_opened(worker: Worker, settings: Any) -> None:
    worker.ask()
    settings.TOOL_CALL_APPROVAL_DAYS = 3
    approval = worker.opened()

    assert approval.expires_at - approval.created_at == timedelta(days=3)


@pytest.mark.one_database
def test_a_yes_that_was_taken_back_is_no_yes(worker: Worker) -> None:
    worker.ask()
    approval = worker.allow()
    permissions.revoke(approval_id=approval.pk, drifted="reconsidered")

    assert worker.states() == ["expired"]
    assert not worker.ask().allowed


@pytest.mark.one_database
def test_the_owner_may_take_a_question_back(worker: Worker) -> None:
    worker.ask()
    worker.wait()
    hold = Hold.objects.get(state="waiting")

    holds.withdraw(hold_id=hold.pk, by=OPERATOR, reason="asked in error")

    assert worker.states() == ["withdrawn"]
    assert worker.stage_status() == Stage.Status.PENDING
    assert worker.ask().message == "this question was taken back: asked in error"


@pytest.mark.one_database
def test_the_end_of_a_mission_ends_its_questions(worker: Worker) -> None:
    worker.ask()
    approval = worker.allow()
    worker.ask(command="another")
    opened = worker.opened()

    missions.fail(mission=worker.mission, reason="out of money")

    assert worker.states() == ["withdrawn", "withdrawn"]
    with pytest.raises(ApprovalSuperseded):
        permissions.permit(approval_id=opened.pk, by=OPERATOR, via="console", digest=opened.digest)
    assert tool_calls.take_back() == 2
    assert tool_calls.take_back() == 0
    approval.refresh_from_db()
    assert approval.state == Approval.State.SUPERSEDED
    assert not Hold.objects.filter(state="waiting").exists()
    with pytest.raises(MissionRefused, match="has ended"):
        worker.ask()


@pytest.mark.one_database
def test_a_released_mission_keeps_no_stage_waiting(worker: Worker) -> None:
    worker.ask()
    worker.wait()

    missions.release(mission_id=worker.mission.pk, reason="stuck", by=OPERATOR)

    assert worker.stage_status() == Stage.Status.PENDING
    assert tool_calls.is_answered(worker.stage.pk), "nor one that had not begun to wait"


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("WebFetch", {"url": "https://evil.example"}),
        ("mcp__bank__transfer", {"to": "evil"}),
        ("Bash\n", {"command": "x"}),
        ("Bash", {"command": "x" * 16_001}),
        ("Bash", {"command": "a\0b"}),
        ("Bash", {"command": "\ud800"}),
        ("Bash", {"timeout": 2**60}),
    ],
)
def test_what_no_sandbox_confines_or_nobody_can_read_is_not_asked(
    worker: Worker, tool: str, given: dict[str, Any]
) -> None:
    answer = worker.ask(tool, **given)

    assert not answer.allowed and not answer.interrupt and answer.message
    assert not ToolCall.objects.exists() and not Hold.objects.exists()


@pytest.mark.one_database
def test_a_worker_that_asks_without_end_is_told_to_stop(worker: Worker) -> None:
    asked = [worker.ask(command=f"echo {number}") for number in range(12)]

    assert [one.interrupt for one in asked] == [True] * 10 + [False] * 2
    assert Hold.objects.count() == 10


@pytest.mark.django_db(transaction=True)
@pytest.mark.invariant(19)
def test_of_two_workers_at_once_one_uses_the_yes(tmp_path: Path) -> None:
    with shared(tmp_path):
        artifacts.ensure_key()
        worker = Worker()
        worker.ask()
        worker.allow()
        assert at_once(worker.ask) == 1
        assert worker.states().count("used") == 1


@pytest.mark.django_db(transaction=True)
def test_two_that_ask_the_same_at_once_make_one_question(tmp_path: Path) -> None:
    with shared(tmp_path):
        artifacts.ensure_key()
        worker = Worker()
        assert at_once(worker.ask) == 0
        assert Hold.objects.count() == ToolCall.objects.count() == 1


def at_once(ask: Any) -> int:
    """How many of four who ask together are allowed."""
    together, allowed = threading.Barrier(4), []

    def run() -> None:
        together.wait(10)
        allowed.append(ask().allowed)
        connections.close_all()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(allowed) == 4
    return sum(allowed)


@pytest.mark.one_database
def test_the_page_shows_tool_input_mission_and_requester(worker: Worker, client: Client) -> None:
    client.force_login(get_user_model().objects.create_superuser("ada", "ada@example.org", "x"))
    worker.ask(command="echo \u202egnp.exe")
    approval = worker.opened()

    shown = selectors.preview(approval)
    held = client.get(reverse("admin:approvals_hold_change", args=[approval.hold_id]))
    page = client.get(reverse("admin:approvals_approval_change", args=[approval.pk]))

    assert shown["tool"] == "Bash"
    assert shown["requester"] == worker.pipeline.requester
    assert shown["mission"] == str(worker.mission.pk)
    assert "\\u202e" in str(shown["text"]) and "\u202e" not in page.content.decode()
    assert worker.pipeline.requester in page.content.decode()
    assert "What the worker asks for" in held.content.decode()
    assert "\u202e" not in held.content.decode()
    assert "Allow exactly this, once" in page.content.decode()


@pytest.mark.one_database
@pytest.mark.invariant(24)
def test_each_step_is_on_record(worker: Worker) -> None:
    worker.ask()
    worker.allow()
    worker.ask()

    kinds = ["tool_call.deferred", "tool_call.allowed", "tool_call.used"]
    mine = MissionEvent.objects.filter(kind__startswith="tool_call.").order_by("id")
    assert list(mine.values_list("kind", flat=True)) == kinds
    logged = Event.objects.filter(kind__startswith="tool_call.").order_by("seq")
    assert list(logged.values_list("kind", flat=True)) == kinds


@pytest.mark.one_database
@pytest.mark.fault("runner-05")
def test_the_client_is_answered_through_its_mission_s_token_alone(worker: Worker) -> None:
    token = worker.mission.token
    assert token is not None

    answer = tools.permission_prompt(token, "Bash", CALL, "toolu_1")

    assert (answer["behavior"], answer["interrupt"]) == ("deny", True)
    worker.allow()
    assert tools.permission_prompt(token, "Bash", CALL)["behavior"] == "allow"
    assert Mission.objects.get().tool_calls.count() == 1

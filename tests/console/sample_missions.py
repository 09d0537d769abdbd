"""Missions for looking at the console: one that waits for an answer, one that ended, one stuck.

Written straight into the tables, for tests only. `fill(ada, account, now)` makes commands of the
claude runner, the pipelines of their missions, and what they have cost over two weeks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from approvals.models import Hold
from guards.models import Identity
from mail.models import Account, Message
from pipelines.models import (
    Command,
    Mission,
    MissionEvent,
    MissionResult,
    Pipeline,
    Reflection,
    Stage,
    ToolCall,
)

_HOUR = timedelta(hours=1)
_REVIEW = {
    "schema": "command/1",
    "name": "review",
    "serial": 4,
    "runner": "claude",
    "prompt": "Read the report in your contract and say what is wrong with it.",
    "tools": ["Read"],
    "budget": {"rounds": 2, "reflection_after_each": True, "max_usd": 2, "max_turns": 20},
    "output_schema": "text",
    "repeatable": True,
}
_TIDY = {**_REVIEW, "name": "tidy", "tools": ["Read", "Edit"], "write_set": ["web/docs"]}


@dataclass(frozen=True, slots=True)
class Missions:
    """What tests ask for by name."""

    reviewed: Pipeline
    waiting: Pipeline
    ended: Mission
    stuck: Mission
    question: ToolCall


def fill(ada: Identity, account: Account, now: datetime) -> Missions:
    """All of it."""
    for document in (_REVIEW, _TIDY):
        name = str(document["name"])
        Command.objects.create(
            name=name,
            document=document,
            digest=name[0] * 64,
            serial=4,
            runner="claude",
            description="Reads a report and says what is wrong with it.",
            signature_state="ok",
            signature="x",
            checked_at=now,
        )
    asked = Messages(account, now)
    reviewed = _pipeline(ada, asked.take("dora@partners.example"), now - 5 * _HOUR, "completed")
    ended = _ended_mission(reviewed, now - 5 * _HOUR)
    waiting = _pipeline(
        ada, asked.take("erin@partners.example"), now - 26 * _HOUR, "waiting_approval"
    )
    question, stuck = _waiting_mission(waiting, now - 26 * _HOUR), _stuck_mission(ada, asked, now)
    _refused(ada, asked, now)
    _earlier(ada, asked, now)
    return Missions(reviewed, waiting, ended, stuck, question)


class Messages:
    """Mail that asked for work, one after the other."""

    def __init__(self, account: Account, now: datetime) -> None:
        self._account, self._now, self._number = account, now, 800

    def take(self, sender: str) -> Message:
        """The next one."""
        self._number += 1
        return Message.objects.create(
            account=self._account,
            number=self._number,
            sender=sender,
            subject="Please look at the report",
            text="@ada review the report",
            trust_level="verified",
            trust_reason="pinned-key",
            trust_evidence={},
            permission="rwx",
            action="execute",
            verdict="allow",
            rule="execute-permitted",
            execution="taken",
            sha256=f"{self._number:064x}",
            size=100,
            received_at=self._now - timedelta(days=20),
        )


def _pipeline(
    ada: Identity, message: Message, at: datetime, status: str, **values: Any
) -> Pipeline:
    is_over = status in Pipeline.ENDED
    return Pipeline.objects.create(
        message=message,
        identity=ada,
        requester=message.sender,
        status=status,
        planner="rule:review",
        plan=[{"command": "review", "args": {"file": "report.md"}}],
        created_at=at,
        started_at=at + timedelta(seconds=4),
        finished_at=at + timedelta(minutes=6) if is_over else None,
        **values,
    )


def _stage(pipeline: Pipeline, position: int, command: str, **values: Any) -> Stage:
    usual = {"runner": "claude", "status": "pending", "digest": command[0] * 64}
    return Stage.objects.create(
        pipeline=pipeline, position=position, command=command, **{**usual, **values}
    )


def _mission(stage: Stage, at: datetime, **values: Any) -> Mission:
    contract = {
        "id": "5e0f",
        "command": stage.command,
        "task": _REVIEW["prompt"],
        "inputs": {"args": stage.args, "pipeline_output": {"data": "# Report", "files": []}},
        "write_set": values.get("write_set", []),
        "workplace": "/srv/projects/web",
        "success": {"verdict": "pass"},
    }
    usual = {
        "digest": stage.digest,
        "contract": contract,
        "contract_sha256": "c" * 64,
        "rounds": 2,
        "max_usd": Decimal(2),
        "worker": "claude:worker",
        "evaluator": "countersign:gate",
        "evaluator_digest": "e" * 64,
        "opened_at": at,
        "dispatched_at": at + timedelta(seconds=2),
    }
    return Mission(
        pipeline=stage.pipeline, stage=stage, command=stage.command, **{**usual, **values}
    )


def _ended_mission(pipeline: Pipeline, at: datetime) -> Mission:
    _stage(
        pipeline,
        1,
        "count-words",
        runner="cli",
        status="succeeded",
        started_at=at + timedelta(seconds=4),
        finished_at=at + timedelta(seconds=5),
        argv=[["/usr/bin/wc", "-w"]],
        exit_code=0,
        output="812\n",
        output_size=4,
    )
    stage = _stage(
        pipeline,
        2,
        "review",
        status="succeeded",
        args={"file": "report.md"},
        started_at=at + timedelta(seconds=6),
        finished_at=at + timedelta(minutes=5),
        argv=[["claude", "-p", "--bare", "--max-turns", "20"]],
        exit_code=0,
        output="Two figures do not add up.",
        output_size=26,
        usage={"turns": 14, "usd": 0.8312},
    )
    _stage(
        pipeline,
        3,
        "reply",
        runner="built-in",
        digest="",
        status="succeeded",
        started_at=at + timedelta(minutes=5),
        finished_at=at + timedelta(minutes=6),
    )
    mission = _mission(stage, at, usd=Decimal("0.8312"), turns=14)
    mission.save()
    _result(mission, 1, "fail", "I could read only the first half of the report.")
    Reflection.objects.create(
        mission=mission,
        round=1,
        converging=True,
        signals=["the second half is readable with an offset"],
        recommendation="continue",
        reason="The rest of the report can be read in a second round.",
        created_by="token:csm_4f2a",
    )
    Mission.objects.filter(pk=mission.pk).update(round=2)
    _result(mission, 2, "pass", "Two figures in table 3 do not add up to the total below them.")
    ended = {"closed_at": at + timedelta(minutes=5), "closed_by": "countersign:gate"}
    Mission.objects.filter(pk=mission.pk).update(status="closed", **ended)
    return mission


def _result(mission: Mission, number: int, verdict: str, prose: str) -> None:
    passed = verdict == "pass"
    MissionResult.objects.create(
        mission=mission,
        round=number,
        verdict=verdict,
        confidence=0.4 + 0.25 * number,
        prose=prose,
        output="Two figures do not add up." if passed else None,
        open_questions=["Is the March figure final?"] if passed else [],
        submitted_by="token:csm_4f2a",
    )


def _waiting_mission(pipeline: Pipeline, at: datetime) -> ToolCall:
    stage = _stage(
        pipeline,
        1,
        "tidy",
        status="waiting_approval",
        attempt=1,
        args={"folder": "docs"},
        started_at=at + timedelta(seconds=6),
        argv=[["claude", "-p", "--bare"]],
        usage={"turns": 5, "usd": 0.2104},
    )
    _stage(pipeline, 2, "reply", runner="built-in", digest="")
    mission = _mission(
        stage, at, usd=Decimal("0.2104"), turns=5, write_set=["web:docs"], session_id="f0"
    )
    mission.save()
    MissionEvent.objects.create(mission=mission, kind="dispatched", actor="system", at=at)
    question = ToolCall(
        mission=mission,
        tool="Edit",
        input={"file_path": "docs/index.md", "old_string": "teh", "new_string": "the"},
        digest="9" * 64,
        asked_at=at + timedelta(minutes=2),
    )
    question.hold = Hold.objects.create(
        kind="pipelines.tool-call",
        subject_type="pipelines.toolcall",
        subject_id=str(question.pk),
        source_type="pipelines.mission",
        source_id=str(mission.pk),
        account_type="",
        account_id="",
        reason="a worker asks whether it may use a tool",
        requested_by="identity:ada",
        since=question.asked_at,
    )
    question.save()
    return question


def _stuck_mission(ada: Identity, asked: Messages, now: datetime) -> Mission:
    at = now - timedelta(days=2)
    pipeline = _pipeline(ada, asked.take("dora@partners.example"), at, "cancelled")
    stage = _stage(pipeline, 1, "tidy", status="cancelled", started_at=at, finished_at=at + _HOUR)
    _stage(pipeline, 2, "reply", runner="built-in", digest="")
    mission = _mission(stage, at, usd=Decimal("0.4"), turns=9, write_set=["web:src"])
    mission.save()
    MissionEvent.objects.create(mission=mission, kind="dispatched", actor="system", at=at)
    return mission


def _refused(ada: Identity, asked: Messages, now: datetime) -> None:
    """Two workers that were never started: one for want of money, one for want of a sandbox."""
    said = {
        "summary": "daily-budget: command summary may cost 25.00 USD a day; 24.10 are spent",
        "lint": "sandbox-missing: workers cannot be confined here: bubblewrap is not installed",
    }
    for command, error in said.items():
        at = now - timedelta(seconds=20)
        pipeline = _pipeline(ada, asked.take("erin@partners.example"), at, "failed", failing=True)
        ended = {"started_at": at, "finished_at": at, "error": error}
        _stage(pipeline, 1, command, status="failed", **ended)


def _earlier(ada: Identity, asked: Messages, now: datetime) -> None:
    """What two weeks have cost."""
    Mission.objects.bulk_create(_earlier_missions(ada, asked, now))


def _earlier_missions(ada: Identity, asked: Messages, now: datetime) -> Iterator[Mission]:
    senders = ("dora@partners.example", "erin@partners.example", "alice@partners.example")
    for number in range(9):
        at = now - timedelta(days=1 + number * 1.5)
        command = ("review", "tidy", "summary")[number % 3]
        pipeline = _pipeline(ada, asked.take(senders[number % 3]), at, "completed")
        stage = _stage(pipeline, 1, command, status="succeeded", started_at=at, finished_at=at)
        cost = Decimal((number * 7) % 11 + 1) / 5
        yield _mission(
            stage,
            at,
            status="failed",
            usd=cost,
            turns=number + 3,
            closed_at=at + timedelta(minutes=4),
            closed_by="countersign:gate",
        )

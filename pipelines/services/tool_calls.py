"""Questions of a worker to the owner: may I use this tool, with exactly this input, once?

A call outside its command's own tools is recorded and held, and the run ends there. A person
answers it on the page of approvals, days later if need be; then the stage goes on in the same
session, and finds exactly that call allowed, once. Any other input is another question. A no, and
its reason, are told to the worker, and the same call is not asked a second time.

Locks are taken in one order: hold, approval, pipeline, question. Who ends a mission has the
pipeline already, so the holds of its questions are closed in a transaction of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError
from django.utils import timezone

from approvals.models import Approval, Hold
from approvals.services import holds, permissions
from approvals.types import Request
from guards import queue
from guards.exceptions import AlreadyDecided
from guards.services.units import unit_of_work
from guards.types import SYSTEM, Asker, Subject
from pipelines import deferral
from pipelines.models import Mission, MissionEvent, Pipeline, ToolCall
from pipelines.services import rows, waking
from pipelines.services.missions import record
from pipelines.services.missions.budgets import DISPATCHED
from teams.services import events

#: Questions of one mission that reach a person; more are refused unasked.
MOST_QUESTIONS = 10

State = ToolCall.State

#: The kind of event that a question begins with.
_DEFERRED = "tool_call.deferred"

#: What a person's answer, or the lack of one, makes of a question.
_ANSWERS = {
    Hold.State.ALLOWED: State.ALLOWED,
    Hold.State.REJECTED: State.REJECTED,
    Hold.State.CHANGES_REQUESTED: State.REJECTED,
}

#: What a worker is told who asks again what was answered with no.
_NO = {
    State.REJECTED: "the owner did not allow this",
    State.EXPIRED: "nobody answered in time whether you may do this",
    State.WITHDRAWN: "this question was taken back",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What the client is told about a call. `interrupt` ends the run: the answer comes later."""

    allowed: bool
    message: str = ""
    interrupt: bool = False

    def document(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The answer in the client's form, for a call with this input."""
        if self.allowed:
            return {"behavior": "allow", "updatedInput": dict(given)}
        denied = {"behavior": "deny", "message": self.message}
        return {**denied, "interrupt": True} if self.interrupt else denied


def ask(*, mission_id: UUID, tool: str, given: Mapping[str, Any], by: Asker) -> Answer:
    """May this worker use that tool with that input? Allowed at most once for each yes.

    A first question, and one that still waits, end the run. What nobody may be asked (a tool that
    no sandbox confines, an input that cannot be shown whole, the eleventh question) is refused at
    once, and the worker may go on without it. Raises MissionRefused (`mission-ended`) and NotFound.
    """
    try:
        call = deferral.read_call(tool, given)
    except deferral.NotAskable as refusal:
        return Answer(False, refusal.detail)
    for _ in range(2):
        try:
            with unit_of_work():
                return _answer(mission_id, call, by)
        except IntegrityError:
            continue  # the same question was asked at the same moment: read its row
    return Answer(False, "this call is being asked for already", interrupt=True)


def follow_hold(*, hold: Hold) -> None:
    """A person answered, or the question was taken back. Joins the transaction of the answer."""
    found = ToolCall.objects.filter(hold=hold).select_related("mission").first()
    if found is None:
        return
    mission = found.mission
    Pipeline.objects.select_for_update().get(pk=mission.pipeline_id)
    waiting = _waiting_of(mission)
    call = next((one for one in waiting if one.pk == found.pk), None)
    if call is None:
        return
    _move(call, mission, State.WAITING, _answer_of(hold, call), by=hold.closed_by, said=hold.answer)
    if len(waiting) == 1:
        waking.go_on(stage_id=mission.stage_id, actor=hold.closed_by)


def follow_approval(*, approval: Approval, old: str) -> None:
    """A yes that nobody used is over: so is its question. Joins that transaction."""
    over = {Approval.State.EXPIRED, Approval.State.SUPERSEDED}
    if old != Approval.State.APPROVED or approval.state not in over:
        return
    calls = ToolCall.objects.filter(hold=approval.hold, state=State.ALLOWED)
    call = calls.select_related("mission").first()
    if call is not None:
        said = "the yes was not used in time"
        _move(call, call.mission, State.ALLOWED, State.EXPIRED, by=str(SYSTEM), said=said)


def withdraw(*, mission_id: UUID, reason: str) -> int:
    """A mission has ended: so have its questions. Joins that transaction; how many there were.

    Their holds are closed right after it, by `take_back`. A stage whose mission was released while
    it waited goes on: it has nobody to wait for, and is told so.
    """
    mission = record.read(mission_id)
    where = {"mission_id": mission.pk, "state": [State.WAITING, State.ALLOWED]}
    ended = 0
    for call in rows.find(ToolCall, where=where, order_by="pk"):
        ended += _move(call, mission, call.state, State.WITHDRAWN, by=str(SYSTEM), said=reason)
    if ended:
        queue.enqueue("pipelines.tasks.take_back_questions")
    if mission.released_at is not None:
        waking.go_on(stage_id=mission.stage_id, actor=mission.released_by)
    return ended


def take_back() -> int:
    """Close what waits for a person although its question has ended; how many there were."""
    closed = 0
    ended = ToolCall.objects.filter(state__in=_NO).select_related("hold")
    for call in ended.filter(hold__state=Hold.State.WAITING):
        closed += _close_hold(call, reason=call.reason or "the question has ended")
    unused = Approval.objects.filter(kind=deferral.KIND, state=Approval.State.APPROVED)
    for approval in unused.filter(hold__in=ended.values("hold")):
        closed += permissions.revoke(approval_id=approval.pk, drifted="question ended")
    return closed


def expire_due() -> int:
    """End questions that nobody has answered in time; their stages go on and are told so."""
    overdue = ToolCall.objects.filter(
        state=State.WAITING, asked_at__lte=_oldest(), hold__state=Hold.State.WAITING
    )
    days = settings.TOOL_CALL_APPROVAL_DAYS
    return sum(
        _close_hold(call, reason=f"nobody answered within {days} days")
        for call in overdue.select_related("hold").order_by("asked_at")
    )


def is_waiting(*, mission: Mission) -> bool:
    """Whether the mission's last run has asked a person, even one that was quick to answer.

    By the order of the record, not by clocks: runs and questions may be of different hosts.
    """
    if ToolCall.objects.filter(mission=mission, state=State.WAITING).exists():
        return True
    noted = MissionEvent.objects.filter(mission=mission, kind__in=[DISPATCHED, _DEFERRED])
    last = noted.order_by("-id").values_list("kind", flat=True).first()
    return last == _DEFERRED


def is_answered(stage_id: int) -> bool:
    """Whether everything that this stage's worker has asked is answered.

    Also where its mission was released meanwhile: nobody is left to wait for.
    """
    calls = ToolCall.objects.filter(mission__stage_id=stage_id)
    return calls.exists() and not calls.filter(state=State.WAITING).exists()


def _answer(mission_id: UUID, call: deferral.Call, by: Asker) -> Answer:
    mission = record.read(mission_id)
    if mission.status != Mission.Status.OPEN or mission.released_at is not None:
        record.held_open(mission_id)
    asked = ToolCall.objects.filter(mission=mission, digest=call.digest)
    last = asked.select_related("hold").order_by("-asked_at").first()
    if last is not None and last.state == State.ALLOWED:
        if _use(last, mission, by):
            return Answer(True)
        last.refresh_from_db()
    if last is None or last.state == State.USED:
        return _question(mission, call, by)
    if last.state in _NO:
        said = _NO[State(last.state)]
        return Answer(False, f"{said}: {last.reason}" if last.reason else said)
    return Answer(False, "the owner has not answered this yet", interrupt=True)


def _use(asked: ToolCall, mission: Mission, by: Asker) -> bool:
    """The one use of a yes: its approval is consumed and the question used, or neither."""
    approval = Approval.objects.filter(hold=asked.hold, state=Approval.State.APPROVED).first()
    if approval is None:
        return False
    if not permissions.consume(approval_id=approval.pk, use=deferral.frozen(asked, mission)):
        return False
    if not _move(asked, mission, State.ALLOWED, State.USED, by=str(by), said=asked.reason):
        raise AlreadyDecided("this call was used, or its mission ended, at the same moment")
    return True


def _question(mission: Mission, call: deferral.Call, by: Asker) -> Answer:
    if ToolCall.objects.filter(mission=mission).count() >= MOST_QUESTIONS:
        return Answer(False, f"this mission has asked {MOST_QUESTIONS} times: go on without")
    asked = ToolCall.objects.create(
        mission=mission,
        round=mission.round,
        tool=call.tool,
        input=dict(call.given),
        digest=call.digest,
        asked_at=timezone.now(),
    )
    request = Request(
        deferral.KIND,
        deferral.subject(asked),
        requested_by=by,
        source=Subject("mail.message", str(mission.pipeline.message_id)),
        project=str(mission.contract.get("project", "")),
    )
    reason = f"the worker of {mission.command} asks whether it may use {call.tool}"
    asked.hold = holds.hold(request=request, reason=reason[:200])
    asked.save(update_fields=["hold"])
    _note(asked, mission, _DEFERRED, by=str(by))
    return Answer(False, "this needs the owner's yes: wait for it", interrupt=True)


def _waiting_of(mission: Mission) -> list[ToolCall]:
    """The mission's open questions, locked: of two answers at once one sees that it is the last."""
    rows = ToolCall.objects.select_for_update().filter(mission=mission, state=State.WAITING)
    return list(rows.order_by("pk"))


def _answer_of(hold: Hold, call: ToolCall) -> State:
    answer = _ANSWERS.get(Hold.State(hold.state))
    if answer is not None:
        return answer
    overdue = hold.closed_by == str(SYSTEM) and call.asked_at <= _oldest()
    return State.EXPIRED if overdue else State.WITHDRAWN


def _move(
    call: ToolCall, mission: Mission, old: str, new: State, *, by: str, said: str = ""
) -> bool:
    """One conditional UPDATE and its event; False when the question is not there any more."""
    moment = {"used_at" if new is State.USED else "answered_at": timezone.now()}
    moved = ToolCall.objects.filter(pk=call.pk, state=old).update(state=new, reason=said, **moment)
    if moved:
        call.state, call.reason = new, said
        _note(call, mission, f"tool_call.{new}", by=by)
    return bool(moved)


def _note(call: ToolCall, mission: Mission, kind: str, *, by: str) -> None:
    about = record.subject(mission.pk)
    facts = {
        "tool": call.tool,
        "digest": call.digest,
        "reason": call.reason[:300],
        "pipeline": str(mission.pipeline_id),
    }
    MissionEvent.objects.create(mission=mission, kind=kind, actor=by, facts=facts)
    events.append_event(kind=kind, subject=about, actor=by, facts=facts)


def _close_hold(call: ToolCall, *, reason: str) -> bool:
    if call.hold_id is None:
        return False
    try:
        holds.withdraw(hold_id=call.hold_id, by=SYSTEM, reason=reason)
    except AlreadyDecided:
        return False
    return True


def _oldest() -> datetime:
    return timezone.now() - timedelta(days=settings.TOOL_CALL_APPROVAL_DAYS)

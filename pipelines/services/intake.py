"""Stage 0: an admitted message becomes a pipeline, once, ever.

Trust, permission, decision, text, plan and arguments are derived again from the raw bytes: nothing
that was stored at ingest is believed. Then one transaction takes the replay key, the message and
the rows.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from guards import selectors as guards
from guards.exceptions import Conflict
from guards.services import replay
from guards.services.units import unit_of_work
from guards.types import Action, Judgement, Rule, Subject, TrustReason, Verdict
from mail import selectors as mail
from mail.exceptions import RawMissing
from mail.models import Message
from mail.services import messages
from pipelines import pipes, write_sets
from pipelines.models import Pipeline, Stage
from pipelines.services import planning, rules
from pipelines.types import AcceptedPlan, CommandCall, PlannedStage, PlanningRequest, PlanRefused
from teams.services import events

log = structlog.get_logger(__name__)

#: The command name of the stage that ends every pipeline (DES-029).
REPLY = "reply"


@dataclass(frozen=True, slots=True)
class _Derived:
    """What stage 0 made of the raw bytes, as far as a pipeline needs it."""

    text: str
    sender: str
    replay_key: str
    trust_level: str
    evidence: Mapping[str, object]


class _Taken(Conflict):
    """Another worker has taken this message."""


def take_in(*, message_id: int) -> Pipeline | None:
    """Make the pipeline of a message whose execution is due; None when there is none to make.

    None for: a message that is not due (any more), one that does not pass when looked at again, a
    replay, and one whose bytes or signature cannot be looked at just now, which stays due. A plan
    that is refused or missing still makes a pipeline: one that only answers with the fixed text.
    """
    message = Message.objects.select_related("account__identity").filter(pk=message_id).first()
    if message is None or message.execution != Message.Execution.DUE:
        return None
    derived = _derive(message)
    if derived is None:
        return None
    answer = planning.plan(
        PlanningRequest(derived.text, derived.sender, message.account.identity_id)
    )
    try:
        return _create(message, derived, answer)
    except _Taken:
        return None


def _derive(message: Message) -> _Derived | None:
    """What the raw bytes say now; None for what must not start, or cannot be told just now."""
    try:
        assessment = mail.reassess(message, replayed=_is_known)
    except RawMissing as error:
        log.error("message stays due: %s", error.detail, message=message.pk)
        return None
    if assessment.trust.reason is TrustReason.VERIFIER_UNAVAILABLE:
        log.warning("message stays due: its signature cannot be checked", message=message.pk)
        return None
    judgement = assessment.judgement
    text, key = assessment.executable_text, assessment.replay_key
    sender = _sender(message)
    if not _executes(judgement) or not text or not key:
        messages.refuse_execution(message_id=message.pk, judgement=judgement)
        return None
    if sender != message.sender.lower():
        evidence = {**judgement.evidence, "note": "the row names another sender than the bytes"}
        held = Judgement(Action.EXECUTE, Verdict.HOLD, Rule.NO_IDENTITY, evidence)
        messages.refuse_execution(message_id=message.pk, judgement=held)
        return None
    return _Derived(
        planning.storable(text), sender, key, str(assessment.trust.level), judgement.evidence
    )


def _sender(message: Message) -> str:
    """Whom the raw bytes name, lower-case: replies go to the row's sender, so both must agree."""
    found = mail.parsed(message).sender
    return found.address.lower() if found is not None else ""


def _is_known(key: str) -> bool:
    return bool(guards.replay_known([key]))


def _executes(judgement: Judgement) -> bool:
    return judgement.action is Action.EXECUTE and judgement.verdict is Verdict.ALLOW


def _create(
    message: Message, derived: _Derived, answer: AcceptedPlan | PlanRefused
) -> Pipeline | None:
    identifier = uuid.uuid4()
    with unit_of_work():
        subject = Subject("pipelines.pipeline", str(identifier))
        if not replay.claim(key=derived.replay_key, subject=subject):
            messages.refuse_execution(message_id=message.pk, judgement=_replayed(derived))
            return None
        if not messages.take_for_execution(message_id=message.pk):
            raise _Taken
        pipeline = _write(identifier, message, derived, answer)
        if answer.planner.startswith("rule:"):
            rules.count_hit(name=answer.planner.removeprefix("rule:"))
        announce(pipeline)
    return pipeline


def _replayed(derived: _Derived) -> Judgement:
    evidence = {**derived.evidence, "replay_key": derived.replay_key}
    return Judgement(Action.EXECUTE, Verdict.HOLD, Rule.REPLAYED, evidence)


def _write(
    identifier: uuid.UUID,
    message: Message,
    derived: _Derived,
    answer: AcceptedPlan | PlanRefused,
) -> Pipeline:
    refused = answer if isinstance(answer, PlanRefused) else None
    stages = answer.stages if isinstance(answer, AcceptedPlan) else ()
    pipeline = Pipeline.objects.create(
        id=identifier,
        message=message,
        identity=message.account.identity,
        requester=message.sender,
        planner=answer.planner[:80],
        plan=plan_as_json(answer),
        refused_rule=refused.rule if refused else "",
        failing=refused is not None,
        error=refused.detail if refused else "",
        write_set=write_set_of(stages),
        pipe=_first_pipe(message, derived),
    )
    first = 0 if stages and stages[0].spec.name == planning.PLAN else 1
    rows = [
        stage_of(pipeline, position, planned)
        for position, planned in enumerate(stages, start=first)
    ]
    reply = Stage(
        pipeline=pipeline,
        position=first + len(rows),
        command=REPLY,
        runner="built-in",
        mode="passthrough",
    )
    Stage.objects.bulk_create([*rows, reply])
    return pipeline


def stage_of(pipeline: Pipeline, position: int, planned: PlannedStage) -> Stage:
    """The row of a planned stage, not saved yet."""
    return Stage(
        pipeline=pipeline,
        position=position,
        command=planned.spec.name,
        digest=planned.digest,
        args=dict(planned.args),
        runner=planned.spec.runner,
        mode=planned.spec.mode,
    )


def plan_as_json(answer: AcceptedPlan | PlanRefused) -> list[dict[str, Any]]:
    """The calls of a plan as the pipeline keeps them; the question for a plan is none."""
    if isinstance(answer, AcceptedPlan):
        return [
            {"command": stage.spec.name, "args": dict(stage.args)}
            for stage in answer.stages
            if stage.spec.name != planning.PLAN
        ]
    return [_call_as_json(call) for call in answer.calls[: planning.MAX_STAGES + 1]]


def _call_as_json(call: CommandCall) -> dict[str, Any]:
    """A refused call as it is shown: without arguments where those are not even JSON to keep."""
    shown = {"command": call.command[:64], "args": dict(call.args)}
    try:
        json.dumps(shown, allow_nan=False)
        pipes.check_storable(shown)
    except (TypeError, ValueError, RecursionError):
        return {"command": ascii(call.command)[:64], "args": {}}
    return shown


def write_set_of(stages: tuple[PlannedStage, ...]) -> list[str]:
    """What all stages together may change."""
    union: set[str] = set()
    for stage in stages:
        union.update(write_sets.scoped(stage.spec.project, stage.spec.write_set))
    return sorted(union)


def _first_pipe(message: Message, derived: _Derived) -> Mapping[str, Any]:
    """What the first stage reads: facts of the message and the text that counts."""
    facts = {
        "from": message.sender,
        "from_name": message.sender_name,
        "subject": message.subject,
        "date": message.date.isoformat() if message.date else None,
        "message_id": message.message_id,
        "text": derived.text,
        "trust": derived.trust_level,
    }
    return {"data": facts, "files": []}


def announce(pipeline: Pipeline) -> None:
    """Tell the log what was planned, as the pipeline's row says it."""
    refused = pipeline.refused_rule
    commands = [] if refused else [call["command"] for call in pipeline.plan]
    asked = "a plan is asked for" if not commands else ", ".join(commands)
    events.append_event(
        kind="pipeline.planned",
        subject=Subject("pipelines.pipeline", str(pipeline.pk)),
        actor="system",
        facts={
            "planner": pipeline.planner,
            "commands": commands,
            "refused": refused,
            "plan": f"only an answer ({refused})" if refused else asked,
            "message": pipeline.message_id,
        },
    )

"""A plan that a worker proposes: what it may know, and what becomes of its answer.

The worker reads the executable text and the catalogue of signed commands, and has no tools but our
own. Whatever the mail says to it, all it can bring about is a list of signed commands with valid
arguments: its answer goes through the same checks as a rule's (invariant 17), and it is asked once
for each message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db.models import F

from guards.exceptions import CountersignError
from pipelines import pipes
from pipelines.exceptions import MissionRefused
from pipelines.models import Command, Pipeline, Stage
from pipelines.services import intake, planning, verification
from pipelines.types import (
    AcceptedPlan,
    ArgumentSpec,
    ArgumentType,
    CommandCall,
    CommandSpec,
    Plan,
    PlannedStage,
    PlanRefused,
    PlanRule,
)

#: The longest text that a plan is asked for, in characters.
LONGEST_TEXT = 50_000


def question(pipe: bytes) -> bytes:
    """The pipe of the mission: the text of the message, and the commands there are now.

    Nothing else of the message: its subject and its sender's name are not signed. MissionRefused
    (`text-too-long`) for more than a planner is given to read.
    """
    text = str(json.loads(pipe)["data"]["text"])
    if len(text) > LONGEST_TEXT:
        raise MissionRefused(
            f"the text has {len(text)} characters; a plan is asked for up to {LONGEST_TEXT}",
            rule="text-too-long",
        )
    return pipes.encode({"data": {"text": text, "commands": catalogue()}, "files": []})


def catalogue() -> list[dict[str, Any]]:
    """Every command that may run now, with the JSON Schema of its arguments."""
    found = []
    for command in Command.objects.order_by("name"):
        try:
            spec = verification.runnable(command)
        except CountersignError:
            continue
        found.append(
            {
                "command": spec.name,
                "description": spec.description,
                "args": arguments_schema(spec),
            }
        )
    return found


def arguments_schema(spec: CommandSpec) -> dict[str, Any]:
    """The arguments that a plan gives; what comes from the pipe is not for it."""
    given = [argument for argument in spec.arguments if argument.from_pipe is None]
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {argument.name: _argument_schema(argument) for argument in given},
        "required": [argument.name for argument in given if argument.required],
    }


def accept(output: bytes) -> AcceptedPlan | PlanRefused:
    """What the proposal comes to: its calls as stages, or the rule that refuses all of it."""
    try:
        return planning.accept_untrusted(_proposal(output))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        detail = f"the answer is no list of calls: {error}"
        return PlanRefused(PlanRule.NO_PLAN, detail[:300], planning.CLAUDE)


def settle(output: bytes) -> bytes:
    """The proposal as it was judged, for `adopt`: stages with their digests, or a refusal.

    Outside any transaction: a signature costs a child process.
    """
    answer = accept(output)
    refused = answer if isinstance(answer, PlanRefused) else None
    stages = answer.stages if isinstance(answer, AcceptedPlan) else ()
    settled = {
        "plan": intake.plan_as_json(answer),
        "refused": {"rule": refused.rule, "detail": refused.detail} if refused else None,
        "stages": [_stage(planned) for planned in stages],
        "write_set": intake.write_set_of(stages),
    }
    return json.dumps(settled, ensure_ascii=False, separators=(",", ":")).encode()


def adopt(*, pipeline_id: UUID, settled: bytes) -> None:
    """Make the stages of a settled plan, or of its refusal only an answer.

    Joins the transaction that records the end of the asking stage; database only. Each stage is
    looked at again when it runs: its digest is the one that was accepted.
    """
    plan = json.loads(settled)
    pipeline = Pipeline.objects.get(pk=pipeline_id)
    pipeline.plan = plan["plan"]
    pipeline.write_set = plan["write_set"]
    if plan["refused"] is not None:
        pipeline.failing = True
        pipeline.refused_rule = plan["refused"]["rule"]
        pipeline.error = plan["refused"]["detail"]
    _add_stages(pipeline, plan["stages"])
    pipeline.save(update_fields=["failing", "refused_rule", "error", "write_set", "plan"])
    intake.announce(pipeline)


def _stage(planned: PlannedStage) -> dict[str, Any]:
    """A planned stage as its row will say it."""
    return {
        "command": planned.spec.name,
        "digest": planned.digest,
        "args": dict(planned.args),
        "runner": planned.spec.runner,
        "mode": planned.spec.mode,
    }


def _add_stages(pipeline: Pipeline, planned: Sequence[Mapping[str, Any]]) -> None:
    """The work stages take the places after the asking one; the reply moves behind them."""
    stages = Stage.objects.filter(pipeline=pipeline)
    stages.filter(command=intake.REPLY).update(position=F("position") + len(planned))
    first = 1 + stages.get(command=planning.PLAN).position
    Stage.objects.bulk_create(
        Stage(pipeline=pipeline, position=position, **fields)
        for position, fields in enumerate(planned, start=first)
    )


def _proposal(output: bytes) -> Plan:
    """What the worker handed in, as its form was checked: a list of calls."""
    calls = [
        CommandCall(str(entry["command"]), dict(entry.get("args", {})))
        for entry in json.loads(output)
    ]
    return Plan(planning.CLAUDE, tuple(calls))


def _argument_schema(argument: ArgumentSpec) -> dict[str, Any]:
    if argument.type is ArgumentType.ENUM:
        return {"enum": list(argument.choices)}
    schema: dict[str, Any] = {"type": str(argument.type)}
    if argument.max_length is not None:
        schema["maxLength"] = argument.max_length
    return schema

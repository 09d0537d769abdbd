"""A plan that a worker proposes: what it may know, and what becomes of its answer.

The worker reads the executable text and the catalogue of signed commands, and has no tools but our
own. Whatever the mail says to it, all it can bring about is a list of signed commands with valid
arguments: its answer goes through the same checks as a rule's (invariant 17), and it is asked once
for each message.
"""

from __future__ import annotations

import json
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
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        detail = f"the answer is no list of calls: {error}"
        return PlanRefused(PlanRule.NO_PLAN, detail[:300], planning.CLAUDE)


def adopt(*, pipeline_id: UUID, output: bytes) -> None:
    """Make the stages of the plan that was proposed, or of its refusal only an answer.

    Joins the transaction that records the end of the asking stage; database only.
    """
    pipeline = Pipeline.objects.get(pk=pipeline_id)
    answer = accept(output)
    if isinstance(answer, PlanRefused):
        pipeline.failing = True
        pipeline.refused_rule = answer.rule
        pipeline.error = answer.detail
    else:
        _add_stages(pipeline, answer)
        pipeline.write_set = intake.write_set_of(answer.stages)
    pipeline.plan = intake.plan_as_json(answer)
    pipeline.save(update_fields=["failing", "refused_rule", "error", "write_set", "plan"])
    intake.announce(pipeline)


def _add_stages(pipeline: Pipeline, answer: AcceptedPlan) -> None:
    """The work stages take the places after the asking one; the reply moves behind them."""
    stages = Stage.objects.filter(pipeline=pipeline)
    stages.filter(command=intake.REPLY).update(position=F("position") + len(answer.stages))
    first = 1 + stages.get(command=planning.PLAN).position
    Stage.objects.bulk_create(
        intake.stage_of(pipeline, position, planned)
        for position, planned in enumerate(answer.stages, start=first)
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

"""From an executable text to stages: planners propose, and everything they propose is checked.

The first planner that has an answer wins, the rules before any other. Where none has, and PLANNER
is `claude`, the first stage is the built-in `plan`, whose worker proposes. What anybody planned is
untrusted: every command exists and is signed now, every argument is declared and of its type,
`reply` is stripped. A refusal, or no answer, ends in the else path: one fixed text.
"""

from __future__ import annotations

import re

from django.conf import settings

from guards.exceptions import CountersignError
from pipelines import arguments, registry, specification
from pipelines.exceptions import ArgumentInvalid
from pipelines.services import verification
from pipelines.types import (
    AcceptedPlan,
    CommandCall,
    Plan,
    PlannedStage,
    PlanningRequest,
    PlanRefused,
    PlanRule,
)

_NAME = re.compile(r"\A[a-z0-9][a-z0-9_-]{0,63}\Z")

#: Work stages that one message may start.
MAX_STAGES = 16

#: The planner that is a mission, and the built-in command that carries it out.
CLAUDE = "claude"
PLAN = "plan"


def storable(text: str) -> str:
    """An executable text as planners see it: what no database takes is replaced."""
    text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return text.encode("utf-8", "replace").decode()


def plan(request: PlanningRequest) -> AcceptedPlan | PlanRefused:
    """The stages for a message, or why there are none."""
    proposal = propose(request)
    if proposal is not None:
        return accept(proposal)
    asked = registry.built_in(PLAN) if settings.PLANNER == CLAUDE else None
    if asked is not None:
        return AcceptedPlan(CLAUDE, (PlannedStage(asked.spec, "", {}),))
    return PlanRefused(PlanRule.NO_PLAN, "no rule and no planner has an answer")


def accept_untrusted(proposal: Plan) -> AcceptedPlan | PlanRefused:
    """As `accept`, for a planner that has read mail: nothing but what the owner has signed.

    The program's own commands, which a rule of the operator may name, are refused.
    """
    for call in proposal.calls:
        if call.command != "reply" and registry.built_in(call.command) is not None:
            return _refused(
                proposal, PlanRule.RESERVED_COMMAND, f"{call.command} is for rules to plan"
            )
    return accept(proposal)


def propose(request: PlanningRequest) -> Plan | None:
    """The first planner's answer, unchecked."""
    answers = (planner.plan(request) for planner in registry.planners())
    return next((answer for answer in answers if answer is not None), None)


def accept(proposal: Plan) -> AcceptedPlan | PlanRefused:
    """The proposal as stages, once every call passes; the first that does not refuses all of it."""
    calls = check_length(proposal)
    if isinstance(calls, PlanRefused):
        return calls
    stages: list[PlannedStage] = []
    for call in calls:
        stage = _accept_call(proposal, call)
        if isinstance(stage, PlanRefused):
            return stage
        stages.append(stage)
    return AcceptedPlan(proposal.planner, tuple(stages))


def check_length(proposal: Plan) -> tuple[CommandCall, ...] | PlanRefused:
    """The calls but `reply`, which is ours; a refusal where there are none or too many."""
    calls = tuple(call for call in proposal.calls if call.command != "reply")
    if not calls:
        return _refused(proposal, PlanRule.NO_PLAN, "the plan has no command but reply")
    if len(calls) > MAX_STAGES:
        return _refused(
            proposal, PlanRule.TOO_MANY_STAGES, f"{len(calls)} commands, at most {MAX_STAGES}"
        )
    return calls


def is_name(text: str) -> bool:
    """Whether a command could have this name at all."""
    return _NAME.match(text) is not None


def _accept_call(proposal: Plan, call: CommandCall) -> PlannedStage | PlanRefused:
    built_in = registry.built_in(call.command)
    if built_in is not None and built_in.plannable:
        return _accept_built_in(proposal, call, built_in)
    if built_in is not None or call.command in specification.BUILT_IN:
        return _refused(proposal, PlanRule.RESERVED_COMMAND, f"{call.command} cannot be planned")
    if not is_name(call.command):
        detail = f"{ascii(call.command)[:80]} is no name of a command"
        return _refused(proposal, PlanRule.UNKNOWN_COMMAND, detail)
    try:
        spec, digest = verification.find_runnable(call.command)
        args = arguments.check(spec, call.args)
    except ArgumentInvalid as error:
        return _refused(proposal, PlanRule.INVALID_ARGUMENT, f"{call.command}: {error.detail}")
    except CountersignError as error:
        rule = PlanRule.UNKNOWN_COMMAND if error.rule == "gone" else PlanRule.COMMAND_NOT_RUNNABLE
        return _refused(proposal, rule, error.detail)
    return PlannedStage(spec, digest, args)


def _accept_built_in(
    proposal: Plan, call: CommandCall, built_in: registry.BuiltIn
) -> PlannedStage | PlanRefused:
    """A command of the program's own: no document and no digest, but its arguments are checked."""
    try:
        return PlannedStage(built_in.spec, "", arguments.check(built_in.spec, call.args))
    except ArgumentInvalid as error:
        return _refused(proposal, PlanRule.INVALID_ARGUMENT, f"{call.command}: {error.detail}")


def _refused(proposal: Plan, rule: PlanRule, detail: str) -> PlanRefused:
    return PlanRefused(rule, detail, proposal.planner, proposal.calls)

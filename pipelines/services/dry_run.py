"""What would become of a message: plan, argument vectors and checks. Runs and stores nothing.

The rules are asked, Claude is not. Every command is looked at as it is now: its signature, serial,
date, arguments, programs and options, by the same functions as at an execution.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import Error

from guards.exceptions import BinaryNotAllowed, CountersignError
from guards.process import resolve_binary
from guards.types import Action, Judgement, Verdict
from mail import selectors as mail
from mail.models import Message
from pipelines import arguments, registry, specification
from pipelines.exceptions import ArgumentInvalid, CommandNotRunnable
from pipelines.models import Command
from pipelines.services import planning, verification
from pipelines.types import (
    CommandCall,
    CommandSpec,
    DryCall,
    DryRun,
    DryRunRule,
    Plan,
    PlanningRequest,
    PlanRefused,
    PlanRule,
    Refusal,
    RunRule,
)

#: The planner that costs money and so is never asked here.
CLAUDE = "claude"

_RULES: Mapping[str, DryRunRule] = {
    RunRule.GONE: DryRunRule.UNKNOWN_COMMAND,
    RunRule.PAST_VALID_UNTIL: DryRunRule.EXPIRED_COMMAND,
    RunRule.SUPERSEDED: DryRunRule.STALE_SERIAL,
    RunRule.SCHEMA: DryRunRule.SCHEMA,
    RunRule.BINARY: DryRunRule.BINARY,
    RunRule.OPTION: DryRunRule.OPTION,
}
_PLAN_RULES: Mapping[str, DryRunRule] = {
    PlanRule.NO_PLAN: DryRunRule.NO_PLAN,
    PlanRule.TOO_MANY_STAGES: DryRunRule.TOO_MANY_STAGES,
}


def of_file(judged: mail.JudgedFile, *, admitted: bool = False) -> DryRun:
    """What would become of a message file, as it was judged; a database may be missing."""
    text = judged.assessment.executable_text or ""
    refused = _not_admitted(judged.assessment.judgement, text)
    if refused is not None and not (admitted and text):
        return DryRun("none", refused=refused)
    try:
        if not mail.has_database():
            return DryRun(_without_rules())
        return of_text(text, sender=judged.sender, identity_id=judged.identity_id)
    except Error:
        return DryRun(_without_rules())


def of_message(message: Message, *, now: datetime | None = None, admitted: bool = False) -> DryRun:
    """What would become of a stored message if it came now; whether it came before is not asked.

    `admitted` plans it whatever the decision is now, for mail that has become too old to start
    anything. RawMissing where the store lost its bytes.
    """
    assessment = mail.reassess(message, now=now)
    text = assessment.executable_text or ""
    refused = _not_admitted(assessment.judgement, text)
    if refused is not None and not (admitted and text):
        return DryRun("none", refused=refused)
    return of_text(
        text,
        sender=message.sender.lower(),
        identity_id=message.account.identity_id,
    )


def of_text(text: str, *, sender: str, identity_id: int | None) -> DryRun:
    """What would be planned for such an executable text."""
    request = PlanningRequest(planning.storable(text), sender, identity_id)
    free = [planner for planner in registry.planners() if planner.name != CLAUDE]
    answers = (planner.plan(request) for planner in free)
    proposal = next((answer for answer in answers if answer is not None), None)
    return DryRun(_without_rules()) if proposal is None else _of_plan(proposal)


def as_document(run: DryRun) -> dict[str, object]:
    """The published shape."""
    return {
        "planner": run.planner,
        "calls": [
            {
                "command": call.command,
                "args": dict(call.args),
                "runner": call.runner,
                "argv": call.argv,
                "contract": call.contract,
                "signature": call.signature,
            }
            for call in run.calls
        ],
        "refused": (
            None
            if run.refused is None
            else {"rule": run.refused.rule, "detail": run.refused.detail}
        ),
    }


def _without_rules() -> str:
    return CLAUDE if settings.PLANNER == CLAUDE else "none"


def _not_admitted(judgement: Judgement, text: str | None) -> Refusal | None:
    """The decision rule by which a message starts nothing."""
    if judgement.action is Action.EXECUTE and judgement.verdict is Verdict.ALLOW and text:
        return None
    return Refusal(
        str(judgement.rule), f"the message starts nothing: {judgement.verdict} by {judgement.rule}"
    )


def _of_plan(proposal: Plan) -> DryRun:
    """Every call as far as its command exists; the first fault of the first bad one refuses."""
    named = [call for call in proposal.calls if call.command != "reply"]
    refused = _whole_plan(proposal)
    calls: list[DryCall] = []
    for call in named[: planning.MAX_STAGES + 1]:
        shown, fault = _of_call(call)
        refused = refused or fault
        if shown is not None:
            calls.append(shown)
    return DryRun(proposal.planner, tuple(calls), refused)


def _whole_plan(proposal: Plan) -> Refusal | None:
    """What is wrong with the plan as a whole, whatever its calls are."""
    answer = planning.check_length(proposal)
    if isinstance(answer, PlanRefused):
        return Refusal(_PLAN_RULES[answer.rule], answer.detail)
    return None


def _of_call(call: CommandCall) -> tuple[DryCall | None, Refusal | None]:
    built_in = registry.built_in(call.command)
    if built_in is not None or call.command in specification.BUILT_IN:
        return _of_built_in(call, built_in)
    if not planning.is_name(call.command):
        said = f"{ascii(call.command)[:80]} is no name of a command"
        return None, Refusal(DryRunRule.UNKNOWN_COMMAND, said)
    row = Command.objects.filter(name=call.command).first()
    if row is None:
        said = f"there is no command {call.command}"
        return None, Refusal(DryRunRule.UNKNOWN_COMMAND, said)
    fault, signature = _standing(row)
    try:
        spec: CommandSpec | None = specification.read(row.document)
    except CountersignError:
        spec = None
    if spec is None:
        return DryCall(row.name, call.args, row.runner, None, None, signature), fault
    fault = fault or _bad_argument(spec, call)
    return _shown(spec, call, signature), fault


def _standing(row: Command) -> tuple[Refusal | None, str]:
    """Whether the command may run now, and what its signature is worth."""
    signature = verification.signature_of(row)
    try:
        verification.runnable(row)
    except CommandNotRunnable as error:
        if error.rule == RunRule.CHANGED:
            signature = "invalid"
        return Refusal(_RULES.get(error.rule or "", DryRunRule.UNSIGNED), error.detail), signature
    except CountersignError as error:
        return Refusal(DryRunRule.UNSIGNED, error.detail), "invalid"
    return None, signature


def _of_built_in(
    call: CommandCall, built_in: registry.BuiltIn | None
) -> tuple[DryCall | None, Refusal | None]:
    """`send` has no document and no signature to look at: it is the program's own."""
    if built_in is None or not built_in.plannable:
        said = f"{call.command} cannot be planned"
        return None, Refusal(DryRunRule.RESERVED_COMMAND, said)
    shown = DryCall(call.command, dict(call.args), "built-in", None, None, "ok")
    return shown, _bad_argument(built_in.spec, call)


def _bad_argument(spec: CommandSpec, call: CommandCall) -> Refusal | None:
    try:
        arguments.check(spec, call.args)
    except ArgumentInvalid as error:
        return Refusal(DryRunRule.BAD_ARGUMENT, f"{spec.name}: {error.detail}")
    return None


def _shown(spec: CommandSpec, call: CommandCall, signature: str) -> DryCall:
    supplied = {
        argument.name: {"from_pipe": argument.from_pipe}
        for argument in spec.arguments
        if argument.from_pipe is not None
    }
    fits = _bad_argument(spec, call) is None
    return DryCall(
        command=spec.name,
        args={**call.args, **supplied},
        runner=spec.runner,
        argv=_argv(spec, call) if fits and spec.runner == "cli" else None,
        contract=_contract(spec, {**call.args, **supplied}) if fits else None,
        signature=signature,
    )


def _argv(spec: CommandSpec, call: CommandCall) -> list[Any]:
    """The vector of a plain binary, or one of each step."""
    vectors = [
        [_program(step.binary), *step.fixed_args, *arguments.layout_unfilled(spec, call.args)]
        for step in spec.steps
    ]
    return vectors if "steps" in spec.document else vectors[0]


def _program(binary: str) -> str:
    """The program's full path; its name as it was written where it may not run."""
    try:
        return str(resolve_binary(binary))
    except BinaryNotAllowed:
        return binary


def _contract(spec: CommandSpec, args: Mapping[str, Any]) -> dict[str, Any] | None:
    """The mission's contract as far as nothing on record is needed for it."""
    if spec.runner != CLAUDE:
        return None
    from pipelines.services import missions

    return missions.contract_preview(spec=spec, args=args)

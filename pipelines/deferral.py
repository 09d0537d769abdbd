"""A worker's tool call as something that a person can say yes to: its exact form and its digest.

The kind `pipelines.tool-call` is a permission of approvals: it makes no contact, and is consumed
by the worker that asked for it, once, with exactly this tool and this input.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import rfc8785
from django.conf import settings

from approvals.registry import NOTHING
from approvals.types import Frozen, Grant
from guards.exceptions import InvalidInput, NotFound
from guards.types import Subject
from mail import selectors as mail
from pipelines import pipes
from pipelines.models import Mission, Pipeline, ToolCall

KIND = "pipelines.tool-call"

#: The client's own tools that the sandbox confines, whatever their input: nobody is asked about
#: another one, since a yes to it could not be kept to what was shown.
CONFINED_TOOLS = frozenset(
    {"Bash", "Edit", "Glob", "Grep", "MultiEdit", "NotebookEdit", "Read", "Write"}
)

#: The largest input that a person is asked to read, in bytes of its canonical form.
LONGEST_INPUT = 16_000

#: Nesting beyond which an input is not shown.
DEEPEST_INPUT = 16


class NotAskable(InvalidInput):
    """Nobody can be asked about this call; the worker goes on without it."""

    code = "not-askable"


@dataclass(frozen=True, slots=True)
class Call:
    """One call. `exact` are its canonical bytes, which `digest` (SHA-256, hex) is over."""

    tool: str
    given: Mapping[str, Any]
    exact: bytes

    @property
    def digest(self) -> str:
        """What tells this call from every other."""
        return hashlib.sha256(self.exact).hexdigest()


def read_call(tool: str, given: Mapping[str, Any]) -> Call:
    """A call that a person can be asked about; NotAskable says why another cannot."""
    if tool not in CONFINED_TOOLS:
        raise NotAskable(f"{ascii(tool)[:80]} is no tool that anybody may be asked for")
    try:
        pipes.check_storable(given)
        exact = _exact(tool, given)
    except (ValueError, RecursionError) as error:
        raise NotAskable(f"this input has no exact form: {error}") from error
    if len(exact) > LONGEST_INPUT or _depth(given) > DEEPEST_INPUT:
        raise NotAskable(
            f"this input is larger than the {LONGEST_INPUT} bytes that a person is asked to read"
        )
    return Call(tool, given, exact)


def subject(call: ToolCall) -> Subject:
    """How holds and approvals name a question."""
    return Subject("pipelines.tool_call", str(call.pk))


def frozen(call: ToolCall, mission: Mission) -> Frozen:
    """Exactly what a yes allows: the call, for this mission under this contract."""
    return Frozen(_exact(call.tool, call.input), _facts(call, mission), {})


class ToolCallKind:
    """The permission that `approvals` shows and keeps."""

    name = KIND
    label = "Tool call"

    @property
    def validity(self) -> timedelta:
        """TOOL_CALL_APPROVAL_DAYS."""
        return timedelta(days=settings.TOOL_CALL_APPROVAL_DAYS)

    def freeze(self, subject: Subject, grant: Grant = NOTHING) -> Frozen:
        """The call as it was asked, with what a person reads before the answer."""
        call = _found(subject)
        if call is None:
            raise NotFound(f"there is no question {subject.id}")
        exactly = frozen(call, call.mission)
        return Frozen(exactly.payload, exactly.facts, _preview(call, call.mission))

    def recheck_in_writer(self, subject: Subject, facts: Mapping[str, object]) -> str | None:
        """What changed since it was shown: the question, its mission, or what it is bound to."""
        call = _found(subject)
        if call is None or call.state not in {ToolCall.State.WAITING, ToolCall.State.ALLOWED}:
            return "question"
        mission = call.mission
        if mission.status != Mission.Status.OPEN or mission.released_at is not None:
            return "mission"
        now = _facts(call, mission)
        return next((name for name in now if facts.get(name) != now[name]), None)


def _exact(tool: str, given: Mapping[str, Any]) -> bytes:
    return rfc8785.dumps({"tool": tool, "input": dict(given)})


def _facts(call: ToolCall, mission: Mission) -> dict[str, object]:
    return {
        "call": call.digest,
        "mission": str(mission.pk),
        "contract_sha256": mission.contract_sha256,
        "worker": mission.worker,
        "pipeline": str(mission.pipeline_id),
    }


def _preview(call: ToolCall, mission: Mission) -> dict[str, Any]:
    """What a person reads before the answer."""
    pipeline = mission.pipeline
    return {
        "tool": call.tool,
        "requester": pipeline.requester,
        "command": mission.command,
        "mission": str(mission.pk),
        "pipeline": str(pipeline),
        "round": f"{call.round} of {mission.rounds}",
        "working_directory": str(mission.contract.get("workplace", "")),
        "may_change": list(mission.write_set),
        "cost_so_far": f"{mission.usd:.2f} of {mission.max_usd:.2f} USD",
        "asked": f"{call.asked_at:%F %R} UTC",
        "text": call.exact_text,
        "source": _source(pipeline),
    }


def _source(pipeline: Pipeline) -> dict[str, Any]:
    """The mail that the worker works for; covered where its sender may not be read."""
    message = pipeline.message
    shown = message.pk in mail.shown([message])
    return {
        "message_pk": message.pk,
        "from": message.sender,
        "from_name": message.sender_name if shown else "",
        "subject": message.subject if shown else "",
        "date": message.date.isoformat() if message.date else None,
        "message_id": message.message_id,
        "text": message.text[:4000] if shown else "",
        "trust_level": message.trust_level,
        "trust_reason": message.trust_reason,
    }


def _found(subject: Subject) -> ToolCall | None:
    rows = ToolCall.objects.select_related("mission__pipeline__message")
    return rows.filter(pk=subject.id).first()


def _depth(value: Any) -> int:
    if isinstance(value, Mapping):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 0

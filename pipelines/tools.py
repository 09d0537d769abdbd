"""Tools of a mission's worker over MCP: its contract, its result, and what its client asks for it.

They answer to the mission's own token alone: another mission's id is refused whoever asks.
"""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from guards.exceptions import Refused
from guards.fronts.mcp import Tool, in_database, register_tool
from guards.models import ApiToken
from guards.services import tokens
from guards.types import Asker, Refusal, Subject
from pipelines.services import missions, tool_calls

SCOPE = "mission:work"
HOLDER = "pipelines.mission"

MissionId = Annotated[
    UUID | None, Field(description="your mission's id; may be left out, a token has one mission")
]
Document = Annotated[
    dict[str, Any],
    Field(
        description=(
            "verdict (pass, fail, escalate), confidence (0 to 1), prose; output as the contract's "
            "schema says; files, files_changed, open_questions; reflection (converging, signals, "
            "recommendation, reason) where the contract asks for one"
        )
    ),
]


def mission_show(token: ApiToken, mission_id: MissionId = None) -> dict[str, Any]:
    """The contract of the token's mission, its round, and what was said so far."""
    return missions.show(mission_id=_own(token, mission_id), token=token)


def mission_result(
    token: ApiToken, result: Document, mission_id: MissionId = None
) -> dict[str, Any]:
    """Hand in the result of this round, once. What the server knows itself is refused here."""
    made = missions.submit_result(
        mission_id=_own(token, mission_id),
        document=result,
        by=Asker("token", token.prefix),
    )
    return {
        "mission_id": str(made.mission_id),
        "round": made.round,
        "verdict": str(made.verdict),
        "accepted": True,
    }


def permission_prompt(
    token: ApiToken,
    tool_name: Annotated[str, Field(description="the tool that the worker wants to use")],
    input: Annotated[dict[str, Any], Field(description="exactly what it would be given")],
    tool_use_id: Annotated[str, Field(description="the call's id, if it has one")] = "",
) -> dict[str, Any]:
    """Whether the worker may make this call now. A new question ends the run until its answer."""
    asker = Asker("token", token.prefix)
    answer = tool_calls.ask(mission_id=_own(token, None), tool=tool_name, given=input, by=asker)
    return answer.document(input)


def _own(token: ApiToken, mission_id: UUID | None) -> UUID:
    """The mission that the token belongs to; Refused for any other, and for tokens of none."""
    if token.holder_type != HOLDER:
        raise Refused("this token belongs to no mission", rule=Refusal.OTHER_HOLDER)
    wanted = UUID(token.holder_id) if mission_id is None else mission_id
    tokens.require_holder(token, holder=Subject(HOLDER, str(wanted)))
    return wanted


def register() -> None:
    """Offer them. Called once, when this module is loaded."""
    register_tool(
        Tool(
            "mission_show",
            SCOPE,
            "Your contract: task, arguments, input, what you may change, budget, round, and what "
            "the owner said to calls that waited.",
            in_database(mission_show),
        )
    )
    register_tool(
        Tool(
            "mission_result",
            SCOPE,
            "Hand in your result for this round, once.",
            in_database(mission_result),
            writes=True,
        )
    )
    register_tool(
        Tool(
            "permission_prompt",
            SCOPE,
            "For the client alone: whether a call outside the mission's own tools may be made.",
            in_database(permission_prompt),
            structured=False,
            writes=True,
        )
    )


register()

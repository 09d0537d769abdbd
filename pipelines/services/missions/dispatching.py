"""One run of a mission's worker: its token, and what it reads with it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from guards.exceptions import Refused
from guards.models import ApiToken, Identity
from guards.services import tokens
from guards.services.units import unit_of_work
from guards.types import SYSTEM, Refusal
from pipelines.models import Mission, MissionResult, Pipeline, Reflection, ToolCall
from pipelines.services import rows
from pipelines.services.missions import budgets, record
from pipelines.types import MissionRule

#: The one scope of a mission's token.
SCOPE = "mission:work"

#: How long a token outlives the longest run, for the last call of a worker that is being ended.
GRACE = timedelta(minutes=5)


def dispatch(*, mission: Mission, session_id: str = "", secret: str = "") -> tuple[Mission, str]:
    """Begin one run: mint a token for this mission and nothing else, and give back its secret.

    It is `secret` where the worker's program has that already, which counts from here on. Tokens of
    earlier runs die. MissionRefused by `mission-ended`, or `budget-spent` when its rounds
    have cost all that they may.
    """
    with unit_of_work():
        held = record.held_open(mission.pk)
        contract = record.contract_of(held)
        if not record.remaining_usd(held):
            raise record.refusal(
                MissionRule.BUDGET_SPENT,
                f"{held} has cost {held.usd:.2f} of {held.max_usd:.2f} USD",
            )
        tokens.revoke_for(holder=record.subject(held.pk))
        now = timezone.now()
        token, secret = tokens.mint_for(
            holder=record.subject(held.pk),
            label=f"{held} ({held.command})",
            scopes=[SCOPE],
            identity=_identity_of(held),
            expires_at=now + timedelta(seconds=contract.timeout) + GRACE,
            by=SYSTEM,
            secret=secret,
        )
        record.move(
            held,
            dispatched_at=held.dispatched_at or now,
            session_id=session_id or held.session_id,
            token_id=token.pk,
        )
        facts = {"session": held.session_id, "token": token.prefix}
        record.note(held, budgets.DISPATCHED, actor=str(SYSTEM), facts=facts)
    return held, secret


def _identity_of(mission: Mission) -> Identity:
    whose = Pipeline.objects.filter(pk=mission.pipeline_id).values("identity_id")
    return Identity.objects.get(pk__in=whose)


def end_run(*, mission: Mission) -> int:
    """The worker's process has ended: its token counts no longer. How many tokens that ended."""
    with unit_of_work():
        return tokens.revoke_for(holder=record.subject(mission.pk))


def show(*, mission_id: UUID, token: ApiToken) -> dict[str, Any]:
    """What the worker reads: its contract, where it stands, and what was said so far.

    Refused for every token but the mission's own (`other-holder`), one without the scope, and one
    that was revoked.
    """
    require_own(token, mission_id)
    mission = record.read(mission_id)
    contract = record.contract_of(mission)
    mine = {"mission_id": mission.pk}
    return {
        "contract": mission.contract,
        "status": mission.status,
        "round": mission.round,
        "rounds": mission.rounds,
        "remaining_usd": float(record.remaining_usd(mission)),
        "reflection_required": contract.budget.reflection_after_each,
        "results": [_result(row) for row in rows.find(MissionResult, where=mine, order_by="round")],
        "reflections": [
            _reflection(row) for row in rows.find(Reflection, where=mine, order_by="round")
        ],
        "answers": [_answer(row) for row in rows.find(ToolCall, where=mine, order_by="asked_at")],
    }


def require_own(token: ApiToken, mission_id: UUID) -> None:
    """Refuse a token that may not work on this mission now."""
    tokens.require_valid(token)
    if SCOPE not in token.scopes:
        raise Refused(f"this token does not carry the scope {SCOPE}", rule=Refusal.SCOPE_MISSING)
    tokens.require_holder(token, holder=record.subject(mission_id))


def _result(row: MissionResult) -> dict[str, Any]:
    names = ("round", "verdict", "confidence", "prose", "files", "files_changed", "open_questions")
    return {name: getattr(row, name) for name in names}


def _reflection(row: Reflection) -> dict[str, Any]:
    names = ("round", "converging", "signals", "recommendation", "reason")
    return {name: getattr(row, name) for name in names}


def _answer(row: ToolCall) -> dict[str, Any]:
    names = ("round", "tool", "input", "state", "reason")
    return {name: getattr(row, name) for name in names}

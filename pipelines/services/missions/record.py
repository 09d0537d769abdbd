"""A mission's row and its record: how it is read for a change, and what each change leaves."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

from guards.exceptions import NotFound
from guards.types import Subject
from pipelines import mission_documents
from pipelines.exceptions import MissionRefused
from pipelines.mission_documents import Contract
from pipelines.models import Mission, MissionEvent, MissionResult
from pipelines.services import rows
from pipelines.types import MissionRule
from teams.services import events

#: The type of a mission as the holder of its token and as the subject of events.
HOLDER = "pipelines.mission"


def subject(mission_id: UUID) -> Subject:
    """How tokens and events name a mission."""
    return Subject(HOLDER, str(mission_id))


def read(mission_id: UUID) -> Mission:
    """A mission as it is; NotFound otherwise."""
    return _found(rows.find(Mission, where={"pk": mission_id}), mission_id)


def held(mission_id: UUID) -> Mission:
    """A mission's row, kept from other writers until the transaction ends; NotFound otherwise."""
    return _found(rows.find(Mission, where={"pk": mission_id}, keep=True), mission_id)


def _found(missions: list[Mission], mission_id: UUID) -> Mission:
    if not missions:
        raise NotFound(f"there is no mission {mission_id}", field="mission_id")
    return missions[0]


def result_of(mission: Mission) -> MissionResult | None:
    """What was handed in for the round that runs, if anything was."""
    where = {"mission_id": mission.pk, "round": mission.round}
    return next(iter(rows.find(MissionResult, where=where)), None)


def move(mission: Mission, **changes: Any) -> None:
    """Change the columns of a held mission, and the object with them."""
    rows.update(Mission, where={"pk": mission.pk}, changes=changes)
    for name, value in changes.items():
        setattr(mission, name, value)


def held_open(mission_id: UUID) -> Mission:
    """A mission that may go on; MissionRefused for one that has ended or lost its write set."""
    mission = held(mission_id)
    require_open(mission)
    return mission


def require_open(mission: Mission) -> None:
    """MissionRefused for a mission that may not go on."""
    if mission.status != Mission.Status.OPEN or mission.released_at is not None:
        raise refusal(MissionRule.MISSION_ENDED, f"{mission} has ended: {mission.status}")


def contract_of(mission: Mission) -> Contract:
    """The contract as it was admitted; MissionRefused where the row holds another one."""
    if mission_documents.digest(mission.contract) != mission.contract_sha256:
        raise refusal(MissionRule.CONTRACT_CHANGED, f"the contract of {mission} was changed")
    return mission_documents.read_contract(mission.contract)


def note(
    mission: Mission, kind: str, *, actor: str, facts: Mapping[str, object] | None = None
) -> None:
    """Write one event: beside the mission, and into the log. Joins the caller's unit."""
    described: dict[str, Any] = {
        "command": mission.command,
        "round": mission.round,
        "pipeline": str(mission.pipeline_id),
        **(facts or {}),
    }
    rows.insert(MissionEvent(mission_id=mission.pk, kind=kind, actor=actor, facts=described))
    events.append_event(
        kind=f"mission.{kind}", subject=subject(mission.pk), actor=actor, facts=described
    )


def remaining_usd(mission: Mission) -> Decimal:
    """What its rounds may still cost together, in US dollars; never below nothing."""
    return max(mission.max_usd - mission.usd, Decimal(0))


def refusal(rule: MissionRule, detail: str, *, field: str | None = None) -> MissionRefused:
    """A refusal by its rule."""
    return MissionRefused(detail, field=field, rule=rule.value)

"""Every end of a mission. Its token dies in the same transaction, and nothing brings it back."""

from __future__ import annotations

from uuid import UUID

import structlog
from django.utils import timezone

from guards.exceptions import AlreadyDecided, InvalidInput
from guards.services import tokens
from guards.services.authority import require_operator
from guards.services.units import unit_of_work
from guards.types import SYSTEM, Asker
from pipelines.exceptions import GateRefused
from pipelines.models import Mission, Pipeline, Stage
from pipelines.runners import base
from pipelines.services import rows
from pipelines.services.missions import record
from pipelines.signals import mission_ended
from pipelines.types import MissionRule

log = structlog.get_logger(__name__)

#: How much of a reason is kept, in characters.
REASON_SHOWN = 2_000


def fail(*, mission: Mission, reason: str) -> Mission:
    """End a mission that did not work out; one that has ended is given back as it is."""
    with unit_of_work():
        held = record.held(mission.pk)
        if held.status in Mission.ENDED:
            return held
        return end(held, Mission.Status.FAILED, reason=reason, by=SYSTEM)


def escalate(*, mission: Mission, reason: str) -> Mission:
    """End a mission that needs a person; one that has ended is given back as it is."""
    with unit_of_work():
        held = record.held(mission.pk)
        if held.status in Mission.ENDED:
            return held
        return end(held, Mission.Status.ESCALATED, reason=reason, by=SYSTEM)


def abandon(*, mission_id: UUID, reason: str, by: Asker) -> Mission:
    """Give up a mission for which no worker was ever started. Operator only.

    MissionRefused by `already-dispatched` for any other; AlreadyDecided for one that has ended.
    """
    require_operator(by=by, act="abandon a mission")
    said = _said(reason)
    with unit_of_work():
        mission = _held_in_order(record.read(mission_id))
        if mission.status in Mission.ENDED:
            raise AlreadyDecided(f"{mission} has ended: {mission.status}")
        if mission.dispatched_at is not None:
            raise record.refusal(
                MissionRule.DISPATCHED,
                f"a worker was started for {mission}: it fails or closes, or you release it",
            )
        return end(mission, Mission.Status.ABANDONED, reason=said, by=by)


def release(*, mission_id: UUID, reason: str, by: Asker) -> Mission:
    """Free the write set of a mission that is stuck. Operator only; the mission fails with it.

    What its pipeline has left running on this host is ended first, since another worker may begin
    in the same files at once; a live worker on another host is ended by cancelling the pipeline.
    AlreadyDecided for a mission that has ended; one that ends through that very kill is given back.
    """
    require_operator(by=by, act="release a write set")
    said = _said(reason)
    standing = record.read(mission_id)
    if standing.status in Mission.ENDED:
        raise AlreadyDecided(f"{standing} has ended: {standing.status}")
    count = base.end_children(str(standing.pipeline_id))
    log.warning("releasing a write set", mission=str(mission_id), by=str(by), children_ended=count)
    with unit_of_work():
        mission = _held_in_order(standing)
        if mission.status in Mission.ENDED:
            return mission
        record.move(mission, released_at=timezone.now(), released_by=str(by))
        record.note(mission, "released", actor=str(by), facts={"reason": said[:300]})
        return end(mission, Mission.Status.FAILED, reason=f"released: {said}", by=by)


def end_for_stage(*, stage_id: int, status: str, reason: str) -> int:
    """A stage ends: so does its open mission. Joins the caller's unit; how many ended.

    A stage that failed, was cancelled or interrupted fails its mission, or abandons it where no
    worker was started. One that succeeded must have closed its mission before: GateRefused rolls
    the caller back.
    """
    with unit_of_work():
        where = {"stage_id": stage_id, "status": Mission.Status.OPEN}
        living = rows.find(Mission, where=where, order_by="pk", keep=True)
        if living and status == Stage.Status.SUCCEEDED:
            raise GateRefused(f"{living[0]} is open", rule=MissionRule.MISSION_OPEN.value)
        for mission in living:
            begun = mission.dispatched_at is not None
            new = Mission.Status.FAILED if begun else Mission.Status.ABANDONED
            end(mission, new, reason=f"its stage is {status}: {reason}", by=SYSTEM)
    return len(living)


def end(mission: Mission, status: Mission.Status, *, reason: str, by: Asker) -> Mission:
    """Move a held, open mission to its end. For the services of missions alone."""
    said = reason.replace("\0", "")
    changes = {
        "status": status,
        "reason": said[:REASON_SHOWN],
        "closed_at": timezone.now(),
        "closed_by": str(by),
    }
    where = {"pk": mission.pk, "status": Mission.Status.OPEN}
    if not rows.update(Mission, where=where, changes=changes):
        raise AlreadyDecided(f"{mission} has ended")
    for name, value in changes.items():
        setattr(mission, name, value)
    tokens.revoke_for(holder=record.subject(mission.pk))
    facts = {"reason": said[:300], "usd": f"{mission.usd:f}", "turns": mission.turns}
    record.note(mission, status.value, actor=str(by), facts=facts)
    mission_ended.send(
        sender=Mission,
        mission_id=mission.pk,
        stage_id=mission.stage_id,
        pipeline_id=mission.pipeline_id,
        status=status.value,
        reason=mission.reason,
    )
    return mission


def _held_in_order(standing: Mission) -> Mission:
    """The row after its pipeline's and its stage's: whoever cancels those takes that order, too."""
    Pipeline.objects.select_for_update(no_key=True).get(pk=standing.pipeline_id)
    Stage.objects.select_for_update(no_key=True).get(pk=standing.stage_id)
    return record.held(standing.pk)


def _said(reason: str) -> str:
    said = reason.strip().replace("\0", "")
    if not said:
        raise InvalidInput("say why: the reason stays on record", field="reason")
    return said

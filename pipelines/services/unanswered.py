"""The end of a pipeline whose success needs no mail: its last stages and its own, in one move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from guards.services.units import unit_of_work
from pipelines.models import Pipeline, Stage
from pipelines.services import stages, transitions
from pipelines.services.claims import Claim
from pipelines.services.intake import REPLY
from pipelines.services.rows import Answer, Message
from pipelines.services.stages import Success


def end(
    claim: Claim,
    *,
    reply: Stage | None = None,
    after: Success | None = None,
    adopt: Callable[[], None] | None = None,
) -> None:
    """End a pipeline whose success needs no mail, under this claim, in one transaction."""
    stage = reply or Stage.objects.get(pipeline_id=claim.pipeline_id, command=REPLY)
    with unit_of_work():
        move_to_end(claim, reply=stage, after=after, adopt=adopt, last=adopt is None)


def move_to_end(
    claim: Claim,
    *,
    reply: Stage,
    after: Success | None = None,
    adopt: Callable[[], None] | None = None,
    last: bool = False,
) -> None:
    """The same in the caller's unit, whose `last` move this is, or not.

    `after` is the end of its last work stage, where that is not on record yet, with what a built-in
    command or a mission makes of it. `reply` is the reply's row.
    """
    now = timezone.now()
    message = Message()
    moved = transitions.ask_pipeline(
        message,
        claim.pipeline_id,
        Pipeline.Status.COMPLETED,
        old=[Pipeline.Status.RUNNING],
        where=claim.mine,
        changes={"finished_at": now, "lease_until": None, "current": reply.position},
    )
    ended = None if after is None else stages.ask_success(message, claim, after)
    left_out = transitions.ask_stage(
        message,
        reply,
        Stage.Status.SUCCEEDED,
        old=[Stage.Status.PENDING],
        changes={"started_at": now, "finished_at": now},
    )
    message.send(last=last)
    transitions.must(moved.value, f"pipeline {claim.pipeline_id}")
    if after is not None and ended is not None:
        stages.note_success(after, ended)
    if adopt is not None:
        adopt()
    transitions.must(left_out.value, f"the reply of pipeline {claim.pipeline_id}")
    transitions.note_stage(reply, [Stage.Status.SUCCEEDED], {"mail": False})
    transitions.note_pipeline(claim.pipeline_id, Pipeline.Status.COMPLETED)


@dataclass(frozen=True, slots=True)
class End:
    """A pipeline whose only stage has ended well, and whose success needs no mail."""

    claim: Claim
    reply: Stage
    success: Success


def move_several_to_end(
    ends: Sequence[End], *, then: Message | None = None, last: bool = False
) -> list[End]:
    """The same for several, in the caller's unit; those whose claim was not lost.

    What `then` asks goes with it, after the ends. ClaimLost, which rolls the unit back, where a
    stage has moved and its pipeline has not, or the other way round: then each is moved by itself.
    """
    now = timezone.now()
    message = Message()
    pipelines = _ask_pipelines(message, ends, now)
    stages_moved = _ask_stages(message, ends, now)
    if then is not None:
        message.add(then)
    message.send(last=last)
    there = transitions.keys_of(pipelines)
    held = [one for one in ends if one.claim.pipeline_id in there]
    theirs = {stage.pk for one in held for stage in (one.success.stage, one.reply)}
    complete = transitions.keys_of(stages_moved) == theirs
    transitions.must(complete, "a stage of several pipelines that ended")
    for one in held:
        facts = stages.facts_of(one.success.result)
        transitions.note_stage(one.success.stage, [Stage.Status.SUCCEEDED], facts)
        transitions.note_stage(one.reply, [Stage.Status.SUCCEEDED], {"mail": False})
        transitions.note_pipeline(one.claim.pipeline_id, Pipeline.Status.COMPLETED)
    return held


def _ask_pipelines(message: Message, ends: Sequence[End], now: datetime) -> list[Answer[set[Any]]]:
    wanted = {}
    for one in ends:
        ended = {"finished_at": now, "lease_until": None, "current": one.reply.position}
        changes = {"status": Pipeline.Status.COMPLETED, **ended}
        wanted[one.claim.pipeline_id] = (one.claim.mine, changes)
    return transitions.ask_alike(message, Pipeline, wanted, old=[Pipeline.Status.RUNNING])


def _ask_stages(message: Message, ends: Sequence[End], now: datetime) -> list[Answer[set[Any]]]:
    """The work stages and the replies: which moved has to be what the pipelines' moves say."""
    nothing_sent = {"status": Stage.Status.SUCCEEDED, "started_at": now, "finished_at": now}
    work = {}
    for one in ends:
        changes = {"status": Stage.Status.SUCCEEDED, **stages.at_its_end(one.success)}
        work[one.success.stage.pk] = (one.claim.mine, changes)
    replies: transitions.Moves = {one.reply.pk: ({}, nothing_sent) for one in ends}
    return [
        *transitions.ask_alike(message, Stage, work, old=[Stage.Status.RUNNING]),
        *transitions.ask_alike(message, Stage, replies, old=[Stage.Status.PENDING]),
    ]

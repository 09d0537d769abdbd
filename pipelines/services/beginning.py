"""A pipeline that can begin at once: looked at first, then claimed and started in one move.

All that needs no lock comes before the transaction: the rows, the signed command, its arguments,
its program, what its child will read. The claim is still what decides: its UPDATE finds the row
only as it was when it was looked at, and the first stage starts under it, on record before its
process runs. A pipeline that cannot begin like that is claimed by itself and looked at afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from django.utils import timezone

from guards.exceptions import CountersignError
from pipelines import registry
from pipelines.models import Command, Pipeline, Stage
from pipelines.services import (
    acknowledging,
    claims,
    files,
    readying,
    rows,
    stages,
    transitions,
    verification,
)
from pipelines.services.claims import Claim, SeveralTaken
from pipelines.services.places import Place
from pipelines.services.readying import BUILT_IN, Work
from pipelines.services.rows import Answer, Message
from pipelines.services.turn import Turn
from pipelines.types import CommandSpec

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Looked:
    """A due pipeline as it was read, with the work of its first stage; nobody has claimed it."""

    pipeline: Pipeline
    due: list[Stage]
    reply: Stage | None
    work: Work


def look_at(pipeline_id: UUID) -> Looked | None:
    """That pipeline, if it is due and can begin at once."""
    message = Message()
    found = message.find(Pipeline, where={"pk": pipeline_id, "status": Pipeline.DUE})
    pending = stages.ask_pending(message, [pipeline_id])
    message.send()
    due = stages.pending_in(pending.value, [pipeline_id])[pipeline_id]
    return _look(found.value[0], partial(_found, due)) if found.value else None


_place = Place()
#: The commands of the last look: the next one mostly begins with the same.
_of_late: set[str] = set()


def look_ahead() -> Looked | None:
    """One of the due pipelines that wait longest, if it can begin at once."""
    chosen = _place.choose(claims.oldest_due(_place.window(1)), 1)
    return look_at(chosen[0]) if chosen else None


def look_along(count: int, *, ended: Collection[UUID], seconds: float) -> list[Looked] | None:
    """Several of the due pipelines that wait longest, up to the first one that is not for a group.

    None where that one comes first, so that nobody is passed over for ever: it is whoever looks
    who has to carry it out. `ended` are pipelines that count as running and will not any more;
    `seconds` are what a stage's time may be.
    """
    waiting = claims.free_for(_place.window(count), but=ended)
    if not waiting:
        return []
    return _look_at_several(_place.choose([*waiting], count), waiting, seconds) or None


def look_for_group(pipeline_id: UUID, *, seconds: float) -> Looked | None:
    """That pipeline, if it is due and can begin beside others."""
    found = rows.find_parts(Pipeline, ("message_id",), where={"pk": pipeline_id})
    messages = {one.pk: one.message_id for one in found}
    several = _look_at_several([*messages], messages, seconds)
    return several[0] if several else None


def begin(looked: Looked, *, last: bool = False) -> Claim | None:
    """Claim the pipeline and start its first stage; None when it is not as it was, or must wait.

    Joins the caller's unit, whose `last` moves these are, or not. ClaimLost, which rolls the unit
    back, where only the stage has moved, or where its command is no longer the one that was looked
    at.
    """
    stage, message = looked.due[0], Message()
    changes = {"current": stage.position, "files_at": timezone.now()}
    taking = claims.take_looked_at(message, looked.pipeline, changes=changes)
    if taking is None:
        return None
    started = stages.ask_start(
        message,
        taking.claim,
        stage,
        looked.work.vectors,
        until=claims.lease_end(),
        where={"pipeline": taking.under},
    )
    stands = verification.ask_whether_it_stands(message, looked.work.spec, stage.digest)
    message.send(last=last)
    claim = taking.hold()
    if claim is None:
        _place.meet(looked.pipeline.pk)
        return None
    stages.note_start(stage, started)
    transitions.must(stands.value, f"the command that pipeline {looked.pipeline.pk} begins with")
    return claim


class BeforeSeveral:
    """What has to be known before several pipelines begin, asked for in one message.

    Whether their commands still stand, each asked once; and then the executor's turn.
    """

    def __init__(self, several: Sequence[Looked]) -> None:
        self.message = Message()
        self._several = several
        self._stands: dict[tuple[str, str], Answer[bool]] = {}
        for one in several:
            stage = one.due[0]
            key = (stage.command, stage.digest)
            if key not in self._stands:
                asked = (self.message, one.work.spec, stage.digest)
                self._stands[key] = verification.ask_whether_it_stands(*asked)
        self.turn = Turn(self.message)

    def standing(self) -> list[Looked]:
        """Those whose command is still the one that was looked at."""
        stages_of = ((one, one.due[0]) for one in self._several)
        return [one for one, it in stages_of if self._stands[it.command, it.digest].value]


def begin_several(
    several: Sequence[Looked], *, asked: BeforeSeveral | None = None
) -> list[tuple[Looked, Claim]]:
    """Claim several pipelines and start the first stage of each; those that did begin.

    Joins the caller's unit, as its last moves. What is not as it was, or must wait, is left out.
    ClaimLost where only a stage has moved: whoever moves one holds its pipeline. `asked` was sent
    for these a moment ago, in the same unit.
    """
    if asked is None:
        asked = BeforeSeveral(several)
        asked.message.send()
    standing = {one.pipeline.pk: one for one in asked.standing()}
    now, message = timezone.now(), Message()
    changes = {
        pk: {"current": one.due[0].position, "files_at": now} for pk, one in standing.items()
    }
    pipelines = [one.pipeline for one in standing.values()]
    taken = claims.take_several(message, pipelines, held=asked.turn, changes=changes)
    started = _ask_first_stages(message, taken, standing)
    message.send(last=True)
    held = taken.hold()
    if lost := [pk for pk in taken.asked if pk not in held]:
        _place.meet(lost[0])
    begun = [(standing[pk], claim) for pk, claim in held.items()]
    complete = len(transitions.keys_of(started)) == len(begun)
    transitions.must(complete, "the first stage of one of several pipelines")
    for one, _ in begun:
        transitions.note_pipeline(one.pipeline.pk, Pipeline.Status.RUNNING)
        stages.note_started(one.due[0])
    return begun


def _ask_first_stages(
    message: Message, taken: SeveralTaken, standing: Mapping[UUID, Looked]
) -> list[Answer[set[Any]]]:
    """Each starts if its pipeline was there for its claim."""
    until = claims.lease_end()
    wanted: dict[Any, Any] = {}
    for pk, (claim, _) in taken.asked.items():
        stage, work = standing[pk].due[0], standing[pk].work
        start = stages.at_its_start(claim, stage, work.vectors, until=until)
        under = {"pipeline": taken.under(pk)}
        wanted[stage.pk] = (under, {"status": Stage.Status.RUNNING, **start})
    return transitions.ask_alike(message, Stage, wanted, old=[Stage.Status.PENDING])


def _look_at_several(
    chosen: Sequence[UUID], messages: Mapping[UUID, int], seconds: float
) -> list[Looked]:
    """These, up to the first that is not for a group; `messages` are the keys of their mails."""
    if not chosen:
        return []
    message = Message()
    pipelines = message.find(Pipeline, where={"pk": chosen, "status": Pipeline.DUE})
    pending = stages.ask_pending(message, chosen)
    without = files.ask_for_attachments(message, [messages[one] for one in chosen])
    commands = verification.ask_for(message, _of_late)
    message.send()
    due = stages.pending_in(pending.value, chosen)
    known = _commands_of([one for work, _ in due.values() for one in work], commands.value)
    found = {pipeline.pk: pipeline for pipeline in pipelines.value}
    specs: dict[tuple[str, str], CommandSpec] = {}
    several: list[Looked] = []
    for pipeline_id in chosen:
        pipeline = found.get(pipeline_id)
        if pipeline is None:
            continue  # somebody has taken it meanwhile
        read = (due[pipeline_id], without.value, known, specs)
        looked = _look(pipeline, partial(_found_simple, *read))
        if looked is None or not _is_for_a_group(looked, seconds):
            break
        several.append(looked)
    return several


def _commands_of(work: Sequence[Stage], found: list[Command]) -> list[Command]:
    """The commands of these stages: of those that were just read, else asked for."""
    wanted = {stage.command for stage in work}
    if missing := wanted - _of_late:
        message = Message()
        more = verification.ask_for(message, missing)
        message.send()
        found = [*found, *more.value]
    _of_late.clear()
    _of_late.update(wanted)
    return found


def _is_for_a_group(looked: Looked, seconds: float) -> bool:
    """Whether it is expected to end by itself with its only stage, which is in sight."""
    spec = looked.work.spec
    if spec.reply or spec.timeout > seconds or not registry.is_startable(looked.work.runner):
        return False
    return not acknowledging.may_come_due(looked.pipeline, within=spec.timeout)


def _found_simple(
    due: tuple[list[Stage], Stage | None],
    without: Collection[int],
    commands: Collection[Command],
    specs: dict[tuple[str, str], CommandSpec],
    pipeline: Pipeline,
) -> Looked | None:
    """As `_found`, of what was read for several: one stage and a reply that is not wanted."""
    work, reply = due
    if pipeline.failing or len(work) != 1 or reply is None or work[0].runner == BUILT_IN:
        return None
    if not files.begins_empty(pipeline, without):
        return None
    stage = work[0]
    key = (stage.command, stage.digest)
    if key not in specs:
        specs[key] = readying.runnable_of(commands, stage)
    directory = files.directory_of(pipeline.pk)
    ready = readying.ready(stage, pipeline.pipe, directory, looked_at=specs[key])
    if registry.needs_preparation(ready.runner):
        return None
    return Looked(pipeline, work, reply, ready)


def _look(pipeline: Pipeline, find: Callable[[Pipeline], Looked | None]) -> Looked | None:
    """What is wrong with it must not hurt who looks: its claim comes first, then it fails."""
    try:
        return find(pipeline)
    except CountersignError:
        return None
    except Exception:
        log.exception("a pipeline cannot be looked at", pipeline=str(pipeline.pk))
        return None


def _found(work: tuple[list[Stage], Stage | None], pipeline: Pipeline) -> Looked | None:
    due, reply = work
    if pipeline.failing or not due or due[0].runner == BUILT_IN:
        return None
    message, stage = Message(), due[0]
    without = files.ask_for_attachments(message, [pipeline.message_id])
    commands = verification.ask_for(message, [stage.command])
    message.send()
    if not files.begins_empty(pipeline, without.value):
        return None
    spec, directory = readying.runnable_of(commands.value, stage), files.directory_of(pipeline.pk)
    ready = readying.ready(stage, pipeline.pipe, directory, looked_at=spec)
    return None if registry.needs_preparation(ready.runner) else Looked(pipeline, due, reply, ready)

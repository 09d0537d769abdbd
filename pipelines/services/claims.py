"""Who works on a pipeline: one holder, with a fence and a lease that is renewed while it works.

The fence goes up with every claim, and every move under a claim names it: a worker that was taken
for dead can record nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from guards import process
from guards.services.units import unit_of_work
from pipelines.models import Pipeline, Stage
from pipelines.services import rows, transitions, turn
from pipelines.services.rows import Answer, KeyOf, Message
from pipelines.services.turn import Occupied, Turn

#: How long a claim holds without being renewed, and how often it is renewed.
LEASE = timedelta(seconds=90)
RENEW_EVERY = timedelta(seconds=30)

_PAGE = 20
_ALL_BUT_THE_PIPE = tuple(
    field.attname for field in Pipeline._meta.concrete_fields if field.name != "pipe"
)

#: What somebody else may call a pipeline that this worker has in hand.
_TAKEN_AWAY = frozenset({Pipeline.Status.CANCELLED, Pipeline.Status.INTERRUPTED})


@dataclass(frozen=True, slots=True)
class Claim:
    """One worker's hold on one pipeline; `row` is the pipeline as it was when it was claimed."""

    pipeline_id: UUID
    holder: str
    fence: int
    row: Pipeline | None = field(default=None, compare=False, repr=False)

    @property
    def mine(self) -> dict[str, Any]:
        """What a row must say to still be under this claim."""
        return {"claimed_by": self.holder, "fence": self.fence}


def share() -> int:
    """How many pipelines one worker may carry out beside each other, so that others get theirs."""
    at_once, workers = int(settings.PIPELINE_CONCURRENCY), int(settings.QUEUE_WORKERS)
    return math.ceil(at_once / max(1, workers))


def row_of(pipeline_id: UUID) -> Pipeline:
    """A pipeline as it is now, but for its pipe; Pipeline.DoesNotExist where there is none."""
    found = rows.find_parts(Pipeline, _ALL_BUT_THE_PIPE, where={"pk": pipeline_id})
    if not found:
        raise Pipeline.DoesNotExist(f"there is no pipeline {pipeline_id}")
    return found[0]


def lease_end() -> datetime:
    """Until when a claim made or renewed now holds."""
    return timezone.now() + LEASE


def claim_pipeline(pipeline_id: UUID) -> Claim | None:
    """Take a due pipeline, when its turn has come; else leave it queued and return None.

    Its turn has come when fewer than PIPELINE_CONCURRENCY run and none of them shares its write
    set.
    """
    with unit_of_work():
        message = Message()
        held = Turn(message)
        found = message.find(Pipeline, where={"pk": pipeline_id, "status": Pipeline.DUE})
        message.send()
        if not found.value:
            return None
        pipeline = found.value[0]
        hindrance = _hindrance(pipeline, held.occupied)
        if hindrance:
            transitions.move_pipeline(
                pipeline_id,
                Pipeline.Status.QUEUED,
                old=[Pipeline.Status.PLANNED],
                facts={"reason": hindrance},
            )
            return None
        return _taken(pipeline)


@dataclass(frozen=True, slots=True)
class Taking:
    """A claim that is asked for in a message: its own once `hold` says so."""

    claim: Claim
    changes: Mapping[str, Any]
    moved: Answer[bool]

    @property
    def under(self) -> KeyOf:
        """In a later `where` of the same message: the pipeline, if this claim has it."""
        held = {"status": Pipeline.Status.RUNNING, **self.claim.mine}
        return KeyOf(Pipeline, {"pk": self.claim.pipeline_id, **held})

    def hold(self) -> Claim | None:
        """The claim, whose row says so and whose event is noted; None where it found no row."""
        if not self.moved.value:
            return None
        transitions.note_pipeline(self.claim.pipeline_id, Pipeline.Status.RUNNING)
        return _with_its_row(self.claim, self.changes)


def take_looked_at(
    message: Message, pipeline: Pipeline, *, changes: Mapping[str, Any]
) -> Taking | None:
    """Ask for a pipeline that was read a moment ago, to be had if it is still as it was.

    Joins the caller's unit. None where its turn has not come. `changes` are more for its row, in
    the same move.
    """
    return (
        None if _hindrance(pipeline, turn.take().occupied) else _taking(message, pipeline, changes)
    )


def take_several(
    message: Message,
    pipelines: Sequence[Pipeline],
    *,
    held: Turn,
    changes: Mapping[UUID, Mapping[str, Any]],
) -> SeveralTaken:
    """Ask for those of several whose turn has come, to be had where they are still as they were.

    Joins the caller's unit. `changes` are more for each row, in the same move. Two of them whose
    write sets meet are not both taken.
    """
    occupied = held.occupied
    taken: dict[UUID, tuple[Claim, dict[str, Any]]] = {}
    holder, now = process.this_process(), timezone.now()
    for pipeline in pipelines:
        if len(occupied) >= settings.PIPELINE_CONCURRENCY:
            break
        if not occupied.meets(pipeline.pk, pipeline.write_set):
            occupied.add(pipeline.write_set)
            claim = Claim(pipeline.pk, holder, pipeline.fence + 1, pipeline)
            taken[pipeline.pk] = (claim, _at_its_claim(claim, pipeline, changes[pipeline.pk], now))
    wanted = {pk: ({"fence": claim.fence - 1}, moved) for pk, (claim, moved) in taken.items()}
    return SeveralTaken(taken, transitions.ask_alike(message, Pipeline, wanted, old=Pipeline.DUE))


@dataclass(frozen=True, slots=True)
class SeveralTaken:
    """Claims that are asked for in a message, with what each changes in its pipeline's row."""

    asked: Mapping[UUID, tuple[Claim, Mapping[str, Any]]]
    moved: Sequence[Answer[set[Any]]]

    def under(self, pipeline_id: UUID) -> KeyOf:
        """In a later `where` of the same message: that pipeline, if its claim has it."""
        mine = self.asked[pipeline_id][0].mine
        held = {"pk": [*self.asked], "status": Pipeline.Status.RUNNING}
        return KeyOf(Pipeline, {**held, **mine})

    def hold(self) -> dict[UUID, Claim]:
        """Those that found their rows, which say so; their events are the caller's to note."""
        moved = transitions.keys_of(self.moved)
        return {pk: _with_its_row(*self.asked[pk]) for pk in self.asked if pk in moved}


def claim_next(*, begun: bool = True) -> Claim | None:
    """Take the oldest due pipeline whose turn has come: the look and the claim are one step.

    Two workers that look at the same moment so never reach for the same one. Without `begun` only
    one that no worker has looked at.
    """
    with unit_of_work():
        message = Message()
        held = Turn(message)
        oldest = _ask_oldest(message, begun=begun)
        message.send()
        occupied = held.occupied
        if len(occupied) >= settings.PIPELINE_CONCURRENCY:
            return None
        for pipeline in _rows_in_pages(oldest.value, begun=begun):
            if not occupied.meets(pipeline.pk, pipeline.write_set):
                return _taken(pipeline)
    return None


def oldest_due(count: int) -> list[UUID]:
    """The due pipelines that wait longest, at most so many: a look, not a claim."""
    where = {"status": Pipeline.DUE}
    found = rows.find_parts(Pipeline, ("id",), where=where, order_by="created_at", limit=count)
    return [pipeline.pk for pipeline in found]


def free_for(count: int, *, but: Collection[UUID] = ()) -> dict[UUID, int]:
    """The due pipelines that wait longest and meet no other one, at most so many: a look, no claim.

    Each with the key of its mail. `but` are those that still count as running, and will not any
    more.
    """
    occupied: Occupied | None = None
    found: dict[UUID, int] = {}
    parts = ("write_set", "message_id")
    for pipeline in _in_pages(begun=True, parts=parts, size=max(count, 1)):
        if pipeline.write_set:
            occupied = turn.occupied(but) if occupied is None else occupied
            if occupied.meets(pipeline.pk, pipeline.write_set):
                continue
            occupied.add(pipeline.write_set)
        found[pipeline.pk] = pipeline.message_id
        if len(found) >= count:
            break
    return found


def _taken(pipeline: Pipeline) -> Claim | None:
    """Move a due pipeline to this worker, under the executor's turn; its row says so, too."""
    message = Message()
    taking = _taking(message, pipeline, {})
    message.send(last=True)
    return taking.hold()


def _taking(message: Message, pipeline: Pipeline, more: Mapping[str, Any]) -> Taking:
    claim = Claim(pipeline.pk, process.this_process(), pipeline.fence + 1, pipeline)
    changes = _at_its_claim(claim, pipeline, more, timezone.now())
    moved = transitions.ask_pipeline(
        message,
        pipeline.pk,
        Pipeline.Status.RUNNING,
        old=Pipeline.DUE,
        where={"fence": pipeline.fence},
        changes=changes,
    )
    return Taking(claim, changes, moved)


def _at_its_claim(
    claim: Claim, pipeline: Pipeline, more: Mapping[str, Any], now: datetime
) -> dict[str, Any]:
    return {
        "status": Pipeline.Status.RUNNING,
        **claim.mine,
        "lease_until": now + LEASE,
        "started_at": pipeline.started_at or now,
        **more,
    }


def _with_its_row(claim: Claim, changes: Mapping[str, Any]) -> Claim:
    for name, value in changes.items():
        setattr(claim.row, name, value)
    return claim


def hand_back(claim: Claim, *, reason: str) -> bool:
    """Give a pipeline back to the queue between two stages, with nothing of it running."""
    with unit_of_work():
        return transitions.move_pipeline(
            claim.pipeline_id,
            Pipeline.Status.QUEUED,
            old=[Pipeline.Status.RUNNING],
            where=claim.mine,
            changes={"claimed_by": "", "lease_until": None},
            facts={"reason": reason},
        )


def renew(claim: Claim) -> bool:
    """Hold on for another lease; False when the claim is gone."""
    until = lease_end()
    with unit_of_work():
        held = Pipeline.objects.filter(
            pk=claim.pipeline_id, status=Pipeline.Status.RUNNING, **claim.mine
        ).update(lease_until=until)
        Stage.objects.filter(
            pipeline_id=claim.pipeline_id, status__in=Stage.HELD, **claim.mine
        ).update(lease_until=until)
    return bool(held)


def is_held(claim: Claim) -> bool:
    """Whether the pipeline is still under this claim."""
    held = Pipeline.objects.filter(
        pk=claim.pipeline_id, status=Pipeline.Status.RUNNING, **claim.mine
    )
    return held.exists()


def is_taken_away(claim: Claim) -> bool:
    """Whether somebody cancelled or interrupted the pipeline; a row out of sight proves nothing."""
    taken = Pipeline.objects.filter(pk=claim.pipeline_id, status__in=_TAKEN_AWAY)
    return taken.filter(fence__gt=claim.fence).exists()


def whose_turn_has_come(*, begun: bool = True) -> list[UUID]:
    """The due pipelines that could be claimed now, oldest first: a look, not a claim.

    Without `begun` only those that no worker has looked at.
    """
    message = Message()
    running = turn.ask_running(message)
    first = _ask_page(message, begun=begun)
    message.send()
    occupied = Occupied([one.write_set for one in running.value])
    found: list[UUID] = []
    if len(occupied) >= settings.PIPELINE_CONCURRENCY:
        return found
    for pipeline in _in_pages(begun=begun, first=first.value):
        if not occupied.meets(pipeline.pk, pipeline.write_set):
            found.append(pipeline.pk)
            occupied.add(pipeline.write_set)
            if len(occupied) >= settings.PIPELINE_CONCURRENCY:
                break
    return found


def _states(*, begun: bool) -> frozenset[Pipeline.Status]:
    return Pipeline.DUE if begun else frozenset({Pipeline.Status.PLANNED})


def _ask_oldest(message: Message, *, begun: bool) -> Answer[list[Pipeline]]:
    """The oldest due pipeline, whole: it mostly is the one that is wanted."""
    where = {"status": _states(begun=begun)}
    return message.find(Pipeline, where=where, order_by="created_at", limit=1)


def _rows_in_pages(oldest: list[Pipeline], *, begun: bool) -> Iterator[Pipeline]:
    """The due pipelines: the oldest, and then the others in parts."""
    yield from oldest
    if oldest:
        yield from _in_pages(begun=begun, skip=1, parts=_ALL_BUT_THE_PIPE)


def _in_pages(
    *,
    begun: bool,
    skip: int = 0,
    parts: tuple[str, ...] = ("write_set",),
    size: int = _PAGE,
    first: list[Pipeline] | None = None,
) -> Iterator[Pipeline]:
    """Parts of the due pipelines, a few at a time: mostly the first of a long queue are enough.

    `first` is the first page, where it was read already.
    """
    page = first
    for start in count(skip, size):
        if page is None:
            message = Message()
            asked = _ask_page(message, begun=begun, parts=parts, size=size, skip=start)
            message.send()
            page = asked.value
        yield from page
        if len(page) < size:
            return
        page = None


def _ask_page(
    message: Message,
    *,
    begun: bool,
    parts: tuple[str, ...] = ("write_set",),
    size: int = _PAGE,
    skip: int = 0,
) -> Answer[list[Pipeline]]:
    where = {"status": _states(begun=begun)}
    return message.find_parts(
        Pipeline, parts, where=where, order_by="created_at", limit=size, skip=skip
    )


def _hindrance(pipeline: Pipeline, occupied: Occupied) -> str:
    """Why a pipeline must wait, or "". What runs is read under the executor's turn: it is true."""
    if len(occupied) >= settings.PIPELINE_CONCURRENCY:
        return f"{len(occupied)} run, and PIPELINE_CONCURRENCY is {settings.PIPELINE_CONCURRENCY}"
    if occupied.meets(pipeline.pk, pipeline.write_set):
        return "another pipeline changes the same files"
    return ""

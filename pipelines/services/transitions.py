"""How a pipeline or a stage moves: one conditional UPDATE and one event, in the caller's unit.

A move that finds its row no longer where it should be changes nothing and says so. Moves that go
together are asked for in one message (`ask_…`); whether they were there is known once it is sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any
from uuid import UUID

from django.db.models import Model

from guards.types import Subject
from pipelines.exceptions import ClaimLost
from pipelines.models import Pipeline, Stage
from pipelines.services.rows import Answer, Message
from pipelines.signals import pipeline_ended
from teams.services import events

ACTOR = "system"

#: What each of several rows must be like and what it changes, by its key.
Moves = Mapping[Any, tuple[Mapping[str, Any], Mapping[str, Any]]]


def move_pipeline(
    pipeline_id: UUID,
    new: Pipeline.Status,
    *,
    old: Collection[str],
    where: Mapping[str, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
    facts: Mapping[str, object] | None = None,
    actor: str = ACTOR,
) -> bool:
    """Move a pipeline from one of `old` (and as `where` says) to `new`; False if not there."""
    message = Message()
    moved = ask_pipeline(message, pipeline_id, new, old=old, where=where, changes=changes)
    message.send()
    if moved.value:
        note_pipeline(pipeline_id, new, facts, actor)
    return moved.value


def ask_pipeline(
    message: Message,
    pipeline_id: UUID,
    new: Pipeline.Status,
    *,
    old: Collection[str],
    where: Mapping[str, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Answer[bool]:
    """The same move as part of a message; its event is the caller's to note, once it was there."""
    return message.update(
        Pipeline,
        where={"pk": pipeline_id, "status": old, **(where or {})},
        changes={"status": new, **(changes or {})},
    )


def note_pipeline(
    pipeline_id: UUID,
    new: Pipeline.Status,
    facts: Mapping[str, object] | None = None,
    actor: str = ACTOR,
) -> None:
    """The event of a pipeline that has moved, and the word to those who wait for its end."""
    _note(f"pipeline.{new}", Subject("pipelines.pipeline", str(pipeline_id)), actor, facts)
    if new in Pipeline.ENDED:
        pipeline_ended.send(sender=Pipeline, pipeline_id=pipeline_id, status=str(new))


def move_stage(
    stage: Stage,
    new: Stage.Status,
    *,
    old: Collection[str],
    where: Mapping[str, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
    facts: Mapping[str, object] | None = None,
    actor: str = ACTOR,
) -> bool:
    """Move a stage from one of `old` (and as `where` says) to `new`; False when it is not there."""
    message = Message()
    moved = ask_stage(message, stage, new, old=old, where=where, changes=changes)
    message.send()
    if moved.value:
        note_stage(stage, [new], facts, actor)
    return moved.value


def ask_stage(
    message: Message,
    stage: Stage,
    new: Stage.Status,
    *,
    old: Collection[str],
    where: Mapping[str, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Answer[bool]:
    """The same move as part of a message; its event is the caller's to note, once it was there."""
    return message.update(
        Stage,
        where={"pk": stage.pk, "status": old, **(where or {})},
        changes={"status": new, **(changes or {})},
    )


def note_stage(
    stage: Stage,
    statuses: Iterable[Stage.Status],
    facts: Mapping[str, object] | None = None,
    actor: str = ACTOR,
) -> None:
    """One event for each status that a stage has come to."""
    described = {
        "command": stage.command,
        "position": stage.position,
        "pipeline": str(stage.pipeline_id),
        **(facts or {}),
    }
    for status in statuses:
        _note(f"stage.{status}", Subject("pipelines.stage", str(stage.pk)), actor, described)


def move_alike(
    model: type[Model],
    wanted: Moves,
    *,
    old: Collection[str],
) -> set[Any]:
    """Move several rows from one of `old`, with one UPDATE for all that change alike.

    The keys of those that were there; their events are the caller's to note.
    """
    message = Message()
    moved = ask_alike(message, model, wanted, old=old)
    message.send()
    return keys_of(moved)


def ask_alike(
    message: Message,
    model: type[Model],
    wanted: Moves,
    *,
    old: Collection[str],
) -> list[Answer[set[Any]]]:
    """The same moves as part of a message; `keys_of` tells which rows were there."""
    alike: list[tuple[tuple[Mapping[str, Any], Mapping[str, Any]], list[Any]]] = []
    for key, move in wanted.items():
        keys = next((keys for known, keys in alike if known == move), None)
        if keys is None:
            alike.append((move, [key]))
        else:
            keys.append(key)
    return [
        message.update_several(model, keys, where={"status": old, **where}, changes=changes)
        for (where, changes), keys in alike
    ]


def keys_of(moved: Iterable[Answer[set[Any]]]) -> set[Any]:
    """The keys of all rows that moved."""
    return {key for one in moved for key in one.value}


def must(moved: bool, what: str) -> None:
    """ClaimLost, which rolls the whole unit back, when a move did not find its row."""
    if not moved:
        raise ClaimLost(f"{what} is no longer held by this worker")


def _note(kind: str, subject: Subject, actor: str, facts: Mapping[str, object] | None) -> None:
    events.append_event(kind=kind, subject=subject, actor=actor, facts=facts or {})

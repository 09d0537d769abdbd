"""How a pipeline or a stage moves: one conditional UPDATE and one event, in the caller's unit.

A move that finds its row no longer where it should be changes nothing and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any
from uuid import UUID

from django.db.models import Model

from guards.types import Subject
from pipelines.exceptions import ClaimLost
from pipelines.models import Pipeline, Stage
from pipelines.services import rows
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
    before_note: Callable[[], None] | None = None,
) -> bool:
    """Move a pipeline from one of `old` (and as `where` says) to `new`; False if not there.

    `before_note` is what goes with the move and comes before it on record, such as the ends of its
    last stages: the pipeline's row is locked before theirs, as everywhere.
    """
    moved = rows.update(
        Pipeline,
        where={"pk": pipeline_id, "status": old, **(where or {})},
        changes={"status": new, **(changes or {})},
    )
    if moved and before_note is not None:
        before_note()
    if moved:
        note_pipeline(pipeline_id, new, facts, actor)
    return moved


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
    by_way_of: Stage.Status | None = None,
) -> bool:
    """Move a stage from one of `old` (and as `where` says) to `new`; False when it is not there.

    `by_way_of` is a status it passes in the same moment: two moves on record, in one UPDATE.
    """
    moved = rows.update(
        Stage,
        where={"pk": stage.pk, "status": old, **(where or {})},
        changes={"status": new, **(changes or {})},
    )
    if moved:
        note_stage(stage, (by_way_of, new) if by_way_of else (new,), facts, actor)
    return moved


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
    alike: list[tuple[tuple[Mapping[str, Any], Mapping[str, Any]], list[Any]]] = []
    for key, move in wanted.items():
        keys = next((keys for known, keys in alike if known == move), None)
        if keys is None:
            alike.append((move, [key]))
        else:
            keys.append(key)
    moved: set[Any] = set()
    for (where, changes), keys in alike:
        conditions = {"status": old, **where}
        moved |= rows.update_several(model, keys, where=conditions, changes=changes)
    return moved


def must(moved: bool, what: str) -> None:
    """ClaimLost, which rolls the whole unit back, when a move did not find its row."""
    if not moved:
        raise ClaimLost(f"{what} is no longer held by this worker")


def _note(kind: str, subject: Subject, actor: str, facts: Mapping[str, object] | None) -> None:
    events.append_event(kind=kind, subject=subject, actor=actor, facts=facts or {})

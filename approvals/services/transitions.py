"""One function per noun that moves it: a conditional UPDATE, and one signal.

A move that finds the row elsewhere raises AlreadyDecided (or the effect's own error) and changes
nothing. Triggers refuse whatever else tries.
"""

from __future__ import annotations

from typing import Any

from approvals import signals
from approvals.exceptions import ContactAlreadyMarked
from approvals.models import Approval, Effect, Hold
from guards.exceptions import AlreadyDecided


def close_hold(hold: Hold, *, state: str, **fields: Any) -> None:
    """A waiting hold ends; `fields` say when, by whom and with which answer."""
    moved = Hold.objects.filter(pk=hold.pk, state=Hold.State.WAITING).update(state=state, **fields)
    if moved != 1:
        raise AlreadyDecided(f"the draft no longer waits: it is {_now(hold, 'state')}")
    _set(hold, state=state, **fields)
    signals.hold_closed.send(sender=Hold, hold=hold)


def move_approval(approval: Approval, *, state: str, **fields: Any) -> None:
    """An approval goes from the state it was read in to the next."""
    old = approval.state
    allowed = Approval.MOVES.get(Approval.State(old), frozenset())
    moved = state in allowed and Approval.objects.filter(pk=approval.pk, state=old).update(
        state=state, **fields
    )
    if moved != 1:
        raise AlreadyDecided(f"this was decided before: it is {_now(approval, 'state')}")
    _set(approval, state=state, **fields)
    signals.approval_changed.send(sender=Approval, approval=approval, old=old)


def move_effect(effect: Effect, *, phase: str, **fields: Any) -> None:
    """An effect goes on, if it is still held under the fence and revision it was read with."""
    old = effect.phase
    allowed = Effect.MOVES.get(Effect.Phase(old), frozenset())
    fields["revision"] = effect.revision + 1
    moved = phase in allowed and Effect.objects.filter(
        pk=effect.pk, phase=old, job__fence=effect.job.fence, revision=effect.revision
    ).update(phase=phase, **fields)
    if moved != 1:
        raise ContactAlreadyMarked(f"this act has moved on: it is {_now(effect, 'phase')}")
    _set(effect, phase=phase, **fields)
    signals.effect_changed.send(sender=Effect, effect=effect, old=old)


def _now(row: Hold | Approval | Effect, column: str) -> str:
    return str(type(row).objects.values_list(column, flat=True).get(pk=row.pk))


def _set(row: Hold | Approval | Effect, **fields: Any) -> None:
    for name, value in fields.items():
        setattr(row, name, value)

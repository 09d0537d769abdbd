"""The reconcile pass: records that have no event get one, so that the log tells of everything.

A record and its event commit together, so this finds something only after an import, a restore of
some tables, or a writer that went around the services. Such an event has `old` = `reconciled`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from django.db.models import Model, QuerySet

from approvals.models import Approval, Effect, Hold
from guards.services.units import unit_of_work
from teams import receivers
from teams.models import Event

_OLD = "reconciled"
_BATCH = 500

Row = TypeVar("Row", bound=Model)


def raise_missing_events() -> int:
    """Raise the event of every hold, approval and effect whose present state no event tells.

    Each batch is one unit of work. Returns how many events were raised.
    """
    return (
        _raise(Hold.objects.all(), _hold_kind, _record_hold)
        + _raise(
            Approval.objects.all(),
            lambda row: f"approval.{row.state}",
            lambda row: receivers.record_approval(approval=row, old=_OLD),
        )
        + _raise(
            Effect.objects.all(),
            lambda row: f"effect.{row.phase}",
            lambda row: receivers.record_effect(effect=row, old=_OLD),
        )
    )


def _raise(
    rows: QuerySet[Row], kind_of: Callable[[Row], str], record: Callable[[Row], None]
) -> int:
    raised = 0
    for batch in _batches(rows):
        missing = _untold(batch, kind_of)
        with unit_of_work():
            for row in missing:
                record(row)
        raised += len(missing)
    return raised


def _batches(rows: QuerySet[Row]) -> Iterator[Sequence[Row]]:
    following = iter(rows.order_by("pk").iterator(chunk_size=_BATCH))
    while batch := list(islice(following, _BATCH)):
        yield batch


def _untold(batch: Sequence[Row], kind_of: Callable[[Row], str]) -> list[Row]:
    told = set(
        Event.objects.filter(
            subject_type=batch[0]._meta.label_lower,
            subject_id__in=[str(row.pk) for row in batch],
        ).values_list("subject_id", "kind")
    )
    return [row for row in batch if (str(row.pk), kind_of(row)) not in told]


def _hold_kind(row: Hold) -> str:
    return "hold.opened" if row.state == Hold.State.WAITING else "hold.closed"


def _record_hold(row: Hold) -> None:
    waits = row.state == Hold.State.WAITING
    (receivers.record_hold if waits else receivers.record_closed_hold)(hold=row)

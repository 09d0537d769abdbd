"""Appending to the event log: collected during a unit of work, written as its last statement."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import rfc8785
from django.db import connection, transaction
from django.utils import timezone

from guards.services import statements
from guards.services.statements import Result, Statement
from guards.services.units import Unit, current_unit
from guards.types import Subject
from teams import chain
from teams.exceptions import NotRecordable, OutsideUnitOfWork, UnknownEventKind
from teams.models import Event, LogPosition, ProjectPosition
from teams.registry import is_event_kind
from teams.services import checkpoints
from teams.signals import events_appended
from teams.types import EventDraft, LogHead

#: The PostgreSQL channel that wakes the tailers of every process.
CHANNEL = "countersign_events"
#: Facts describe; they never carry a body.
MAX_FACTS_BYTES = 16_384


def append_event(
    *,
    kind: str,
    subject: Subject,
    actor: str,
    project: str = "",
    facts: Mapping[str, object] | None = None,
) -> None:
    """Note an event; it is written when the outermost unit of work closes, or not at all.

    `facts` are JSON (RFC 8785: no NaN, integers below 2^53) and hold no body, no instruction and no
    private address. Raises OutsideUnitOfWork, UnknownEventKind and NotRecordable (with the field's
    name), each of which rolls the act back that could not be recorded (invariant 24).
    """
    unit = current_unit()
    if unit is None:
        raise OutsideUnitOfWork(f"open a unit of work before appending {kind!r}")
    if not is_event_kind(kind):
        raise UnknownEventKind(
            f"{kind!r} is no registered kind of event: name it in ready() with "
            "teams.registry.register_event_kinds",
            field="kind",
        )
    draft = EventDraft(kind, subject, actor, project, dict(facts or {}))
    _refuse_too_long(draft)
    unit.notes.append(replace(draft, text=_canonical(draft)))


def append_collected(unit: Unit) -> LogHead | None:
    """Have the unit end with what it collected, under the lock on the head row, taken last.

    Returns the new head, or None when nothing was collected.
    """
    drafts = [note for note in unit.notes if isinstance(note, EventDraft)]
    if not drafts:
        return None
    old = _held_head(unit) or _lock_head()
    rows, head = _chained(old, drafts)
    unit.last += _writing(rows, head)
    transaction.on_commit(lambda: _announce(old.seq + 1, head.seq), robust=True)
    return head


def _held_head(unit: Unit) -> LogHead | None:
    held = next((note for note in unit.notes if isinstance(note, LogHead)), None)
    if held is not None:
        unit.notes.remove(held)
    return held


def head_to_hold() -> Statement | None:
    """What locks and reads the head, to go with the last statements of a unit; then `hold_head`.

    None in a unit inside of another one, after which the outer one may lock more: the head is
    locked last by everybody.
    """
    unit = current_unit()
    return _head_statement() if unit is not None and not unit.depth else None


def hold_head(found: Result) -> None:
    """The open unit has the lock on the head: it need not ask again when it closes."""
    unit = current_unit()
    if unit is not None and found.rows:
        unit.notes.append(LogHead(*found.rows[0]))


def _refuse_too_long(draft: EventDraft) -> None:
    limits = {
        "subject": (draft.subject.type, 64),
        "subject_id": (draft.subject.id, 64),
        "actor": (draft.actor, 200),
        "project": (draft.project, 64),
    }
    for field, (text, limit) in limits.items():
        if len(text) > limit or "\0" in text:
            raise NotRecordable(
                f"{field} of a {draft.kind} event has more than {limit} characters or a NUL",
                field=field,
            )


def _canonical(draft: EventDraft) -> str:
    """The facts as they are stored and hashed; NotRecordable for what no JSON is, or too much."""
    try:
        text = _plain(draft.facts) or rfc8785.dumps(dict(draft.facts))  # type: ignore[arg-type]
    except (rfc8785.CanonicalizationError, RecursionError) as error:
        raise NotRecordable(f"facts of a {draft.kind} event: {error}", field="facts") from error
    if len(text) > MAX_FACTS_BYTES:
        raise NotRecordable(
            f"facts of a {draft.kind} event have {len(text)} bytes, at most {MAX_FACTS_BYTES} are "
            "kept",
            field="facts",
        )
    return text.decode()


_encoder = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"))
#: From here on a whole number is not exact in every JSON reader.
_INEXACT = 2**53


def _plain(facts: Mapping[str, object]) -> bytes | None:
    """The canonical bytes of facts that hold only short plain values, as most do; else None.

    Python's own encoder writes those as RFC 8785 does: names in ASCII sort alike in UTF-16, and
    texts are escaped alike.
    """
    for name, value in facts.items():
        exact = value is None or isinstance(value, str | bool)
        if not exact and not (type(value) is int and -_INEXACT < value < _INEXACT):
            return None
        if not name.isascii():
            return None
    try:
        return _encoder.encode(facts).encode()
    except UnicodeEncodeError:  # half a character: the other one says where
        return None


# Every transaction of the house ends here, so these are plain SQL: built by the ORM they take
# most of the time of an append. The columns are those of models.Event and models.LogPosition.


def _lock_head() -> LogHead:
    found = _locked()
    if found is None:
        LogPosition.objects.bulk_create([LogPosition(pk=1)], ignore_conflicts=True)
        found = _locked()
    assert found is not None  # noqa: S101 - the row was just made, and nobody deletes it
    return LogHead(*found)


def _locked() -> tuple[int, str] | None:
    (found,) = statements.execute([_head_statement()])
    return found.rows[0] if found.rows else None


def _head_statement() -> Statement:
    statement = "SELECT seq, hash FROM teams_logposition WHERE id = 1"
    locks = connection.features.has_select_for_update
    return Statement(f"{statement} FOR UPDATE" if locks else statement)


_COLUMNS = {
    "seq": "bigint",
    "at": "timestamptz",
    "kind": "text",
    "subject_type": "text",
    "subject_id": "text",
    "actor": "text",
    "project": "text",
    "project_seq": "bigint",
    "facts": "text",
    "prev_hash": "text",
    "hash": "text",
}
_INSERT = f"INSERT INTO teams_event ({', '.join(_COLUMNS)})"


def _writing(rows: Sequence[tuple[Any, ...]], head: LogHead) -> list[Statement]:
    """The events and the new head; on PostgreSQL in one statement, with one value for all events.

    That one wakes the tailers too: PostgreSQL delivers it exactly when the events become visible.
    SQLite needs no word, its tailers watch `PRAGMA data_version`.
    """
    move = "UPDATE teams_logposition SET seq = %s, hash = %s WHERE id = 1"
    if connection.vendor != "postgresql":
        each = f"({', '.join(['%s'] * len(_COLUMNS))})"
        text = f"{_INSERT} VALUES {', '.join([each] * len(rows))}"
        values = [value for row in rows for value in row]
        return [Statement(text, values), Statement(move, [head.seq, head.hash])]
    moved = f"WITH moved AS ({move} RETURNING pg_notify(%s, %s)::text)"
    listed = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
    events = json.dumps([dict(zip(_COLUMNS, row, strict=True)) for row in rows], default=str)
    text = f"{moved} {_INSERT} SELECT * FROM json_to_recordset(%s::json) AS event ({listed})"  # noqa: S608
    return [Statement(text, [head.seq, head.hash, CHANNEL, str(head.seq), events])]


def _chained(old: LogHead, drafts: Sequence[EventDraft]) -> tuple[list[tuple[Any, ...]], LogHead]:
    """The rows in the order of _COLUMNS, each linked to the one before; and the new head."""
    at = timezone.now()
    written_at = chain.moment(at)
    stored_at = connection.ops.adapt_datetimefield_value(at)
    numbered = zip(drafts, _project_seqs(drafts), strict=True)
    head = old
    rows: list[tuple[Any, ...]] = []
    for seq, (draft, project_seq) in enumerate(numbered, start=old.seq + 1):
        words = (draft.kind, draft.subject.type, draft.subject.id, draft.actor, draft.project)
        linked = chain.link(seq, written_at, *words, project_seq, draft.text, head.hash)
        rows.append((seq, stored_at, *words, project_seq, draft.text, head.hash, linked))
        head = LogHead(seq, linked)
    return rows, head


def _project_seqs(drafts: Sequence[EventDraft]) -> list[int | None]:
    slugs = {draft.project for draft in drafts if draft.project}
    if not slugs:
        return [None] * len(drafts)
    reached = dict.fromkeys(slugs, 0)
    known = ProjectPosition.objects.filter(pk__in=slugs).values_list("project", "seq")
    reached.update(known)
    numbers: list[int | None] = []
    for draft in drafts:
        if not draft.project:
            numbers.append(None)
            continue
        reached[draft.project] += 1
        numbers.append(reached[draft.project])
    ProjectPosition.objects.bulk_create(
        [ProjectPosition(project=slug, seq=seq) for slug, seq in reached.items()],
        update_conflicts=True,
        unique_fields=["project"],
        update_fields=["seq"],
    )
    return numbers


def _announce(first: int, last: int) -> None:
    checkpoints.sign_after_append(head_seq=last)
    events_appended.send(sender=Event, first=first, last=last)

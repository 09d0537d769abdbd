"""Proving the log: nothing changed, reordered, removed or cut, or the first row that shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.db.models import Func, TextField
from django.db.models.functions import Cast

from guards.exceptions import SecretUnavailable
from teams import chain, selectors
from teams.models import Checkpoint, Event
from teams.services import checkpoints
from teams.types import LogHead, LogReport

#: Rows taken from the database at once.
_CHUNK = 5_000
#: The columns that the chain hashes, in `chain.link`'s order, and the hash itself.
_COLUMNS = (
    "seq",
    "at_text",
    "kind",
    "subject_type",
    "subject_id",
    "actor",
    "project",
    "project_seq",
    "facts_text",
    "prev_hash",
    "hash",
)

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class _Break:
    seq: int | None
    reason: str


@dataclass(slots=True)
class _Walk:
    """Where a pass over the chain stands, and which heads it must meet on its way."""

    wanted: dict[int, str]
    seq: int = 0
    hash: str = chain.ORIGIN
    broken: _Break | None = None


def verify(*, expected: LogHead | None = None, progress: Progress | None = None) -> LogReport:
    """Walk the whole log, over values: some hundred thousand events per second.

    The head row and every signed checkpoint tie the end: a tail that was cut shows against them.
    `expected` is a head that was kept elsewhere (daily report, backup), for logs whose checkpoints
    were cut too. `first_bad` is the first sequence number that does not hold; it is None while the
    chain holds and only the keys are wrong (`reason` says so). Safe beside writers.
    """
    before = selectors.head()
    signed = list(Checkpoint.objects.order_by("seq"))
    walk = _Walk({checkpoint.seq: checkpoint.hash for checkpoint in signed})
    for head in filter(None, (before if before.seq else None, expected)):
        if walk.wanted.setdefault(head.seq, head.hash) != head.hash:
            walk.broken = _Break(head.seq, f"two heads are known for event {head.seq}")
    _walk(walk, progress)
    broken = walk.broken or _missing_tail(walk) or _row_beyond_head(walk)
    broken = broken or _unsigned(signed)
    if broken is None:
        return LogReport(True, walk.seq, LogHead(walk.seq, walk.hash), None)
    return LogReport(False, Event.objects.count(), selectors.head(), broken.seq, broken.reason)


def _walk(walk: _Walk, progress: Progress | None) -> None:
    """Follow the chain to its end, or to the first row that does not hold."""
    if walk.broken:
        return
    try:
        _follow(walk, progress)
    except (TypeError, ValueError, AttributeError):
        # A column holds what we never write: a text where a time was, a number where a text was.
        walk.broken = _Break(walk.seq + 1, f"event {walk.seq + 1} cannot be read")


def _follow(walk: _Walk, progress: Progress | None) -> None:
    link, wanted = chain.link, walk.wanted
    for values in _rows():
        seq, linked, stored = walk.seq + 1, values[9], values[10]
        if values[0] != seq:
            walk.broken = _Break(seq, f"event {seq} is missing")
        elif linked != walk.hash:
            walk.broken = _Break(seq, f"event {seq} is not tied to the one before it")
        elif link(*values[:10]) != stored:
            walk.broken = _Break(seq, f"event {seq} is not what was recorded")
        elif seq in wanted and wanted[seq] != stored:
            walk.broken = _Break(seq, f"event {seq} is not under the head that was signed there")
        if walk.broken:
            return
        walk.seq, walk.hash = seq, stored
        if progress is not None and seq % _CHUNK == 0:
            progress(seq)


class _Moment(Func):
    """A time as the chain writes it, made by the database: parsing it here costs a third more."""

    output_field = TextField()

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """SQLite keeps UTC as text, without a fraction where that is zero."""
        template = (
            "replace(%(expressions)s, ' ', 'T') || "
            "iif(instr(%(expressions)s, '.'), '', '.000000') || '+00:00'"
        )
        return self.as_sql(compiler, connection, template=template, **context)

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """PostgreSQL formats microseconds itself."""
        shape = 'YYYY-MM-DD"T"HH24:MI:SS.US'
        template = f"to_char(%(expressions)s AT TIME ZONE 'UTC', '{shape}') || '+00:00'"
        return self.as_sql(compiler, connection, template=template, **context)


def _rows() -> Iterator[tuple[Any, ...]]:
    rows = (
        Event.objects.order_by("seq")
        .annotate(at_text=_Moment("at"), facts_text=Cast("facts", TextField()))
        .values_list(*_COLUMNS)
    )
    return rows.iterator(chunk_size=_CHUNK)


def _missing_tail(walk: _Walk) -> _Break | None:
    """Heads that the log once had and no longer reaches."""
    if max(walk.wanted, default=0) <= walk.seq:
        return None
    return _Break(walk.seq + 1, f"the log is cut: it once reached event {max(walk.wanted)}")


def _row_beyond_head(walk: _Walk) -> _Break | None:
    """Rows that were put behind the head without moving it."""
    after = selectors.head()
    if walk.seq > after.seq:
        return _Break(after.seq + 1, f"the head row says {after.seq}, and rows stand behind it")
    return None


def _unsigned(signed: list[Checkpoint]) -> _Break | None:
    """Checkpoints that the installation key did not sign."""
    if not signed:
        return None
    try:
        key = checkpoints.installation_key().public_key()
    except SecretUnavailable as error:
        return _Break(None, f"the checkpoints cannot be checked: {error.detail}")
    for checkpoint in signed:
        if not checkpoints.holds(checkpoint, key):
            return _Break(checkpoint.seq, f"the checkpoint at {checkpoint.seq} is not ours")
    return None

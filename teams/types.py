"""Plain values of the event log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from guards.types import Subject


@dataclass(frozen=True, slots=True)
class EventKind:
    """One kind of event: a stable name, the app that raises it, and what it says to a person."""

    name: str
    app: str
    meaning: str


@dataclass(frozen=True, slots=True)
class EventDraft:
    """An event that waits for the end of its unit of work. `facts` are JSON and hold no body.

    `text` is their canonical form (RFC 8785), made once: it is what is stored and hashed.
    """

    kind: str
    subject: Subject
    actor: str
    project: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)
    text: str = "{}"


@dataclass(frozen=True, slots=True)
class LogHead:
    """Where the log stands: the last sequence number (0 when empty) and the chain's hash there."""

    seq: int
    hash: str


@dataclass(frozen=True, slots=True)
class LogReport:
    """What `verify_log` found. `first_bad` is the first sequence number that does not hold."""

    ok: bool
    events: int
    head: LogHead
    first_bad: int | None
    reason: str = ""

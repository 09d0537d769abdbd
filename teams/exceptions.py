"""What the common room refuses. A docstring is the sentence that people read."""

from __future__ import annotations

from guards.exceptions import Conflict, CountersignError, InvalidInput


class OutsideUnitOfWork(CountersignError):
    """An event is appended at the end of a unit of work, and none is open."""

    code = "outside-unit-of-work"


class UnknownEventKind(InvalidInput):
    """No app registered this kind of event."""

    code = "unknown-event-kind"


class NotRecordable(InvalidInput):
    """A field of an event cannot be recorded as it is."""

    code = "not-recordable"


class CursorBeyondHead(Conflict):
    """The cursor is beyond the head of the log: it comes from another installation or a restore."""

    code = "cursor-beyond-head"


class ProjectExists(Conflict):
    """A project with this slug exists."""

    code = "project-exists"

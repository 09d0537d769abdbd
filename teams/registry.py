"""Where every app names the kinds of events it raises. The list is closed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from teams.types import EventKind

_kinds: dict[str, EventKind] = {}


def register_event_kinds(app: str, kinds: Mapping[str, str]) -> None:
    """Name kinds and their meanings: `{"mail.received": "A message was stored."}`.

    A meaning is a sentence for people; `{actor}`, `{subject}` and the names of facts in braces are
    filled in when an event is shown.
    """
    for name, meaning in kinds.items():
        _kinds[name] = EventKind(name, app, meaning)


def event_kinds() -> Iterable[EventKind]:
    """All kinds, sorted by name."""
    return [_kinds[name] for name in sorted(_kinds)]


def event_kind(name: str) -> EventKind | None:
    """The kind of that name, where it is still registered."""
    return _kinds.get(name)


def is_event_kind(name: str) -> bool:
    """Whether an app registered this kind."""
    return name in _kinds

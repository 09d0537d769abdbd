"""What the feed sends: JSON frames, each event encoded once for all who read it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from teams.models import Event
from teams.sentences import sentence

PING = json.dumps({"type": "ping"})


@dataclass(frozen=True, slots=True)
class EventFrame:
    """An encoded event and what a filter needs to know of it."""

    seq: int
    kind: str
    project: str
    text: str


def event_document(event: Event) -> dict[str, object]:
    """An event as people and programs read it, in the feed and in the API."""
    return {
        "seq": event.seq,
        "at": event.at.isoformat(),
        "kind": event.kind,
        "subject": {"type": event.subject_type, "id": event.subject_id},
        "actor": event.actor,
        "project": event.project,
        "facts": event.facts,
        "text": sentence(event),
    }


def event_frame(event: Event) -> EventFrame:
    """Encode one event."""
    text = json.dumps({"type": "event", "event": event_document(event)}, separators=(",", ":"))
    return EventFrame(event.seq, event.kind, event.project, text)


def gap(*, oldest: int, head: int) -> str:
    """Events were left out: read the log from `oldest`, or start again at `head`."""
    return json.dumps({"type": "gap", "oldest": oldest, "head": head})


def error(*, code: str, message: str) -> str:
    """Why the server ends this connection, or did not do what was asked."""
    return json.dumps({"type": "error", "code": code, "message": message})

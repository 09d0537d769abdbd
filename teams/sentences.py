"""What an event says to a person: its kind's meaning with its facts filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping

from teams.models import Event
from teams.registry import event_kind

_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
#: A fact is shown up to here; the whole of it stands beside the sentence.
_SHOWN = 120


def sentence(event: Event) -> str:
    """One line of plain text; escape it for HTML. A kind that no app names shows itself."""
    kind = event_kind(event.kind)
    if kind is None:
        return f"{event.kind}: {event.subject_type} {event.subject_id}"
    facts: Mapping[str, object] = event.facts if isinstance(event.facts, Mapping) else {}
    known: dict[str, object] = {
        **facts,
        "actor": event.actor.partition(":")[2] or event.actor,
        "subject": f"{event.subject_type.rpartition('.')[2]} {_short(event.subject_id)}",
    }

    def fill(match: re.Match[str]) -> str:
        value = known.get(match[1])
        return "—" if value in (None, "", []) else _one_line(_plain(value))

    return _PLACEHOLDER.sub(fill, kind.meaning)


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _short(subject_id: str) -> str:
    """A UUID by its first eight digits, as the console names it; anything else as it is."""
    return subject_id[:8] if _UUID.fullmatch(subject_id) else subject_id


def _one_line(text: str) -> str:
    shown = " ".join(text.split())
    return shown if len(shown) <= _SHOWN else shown[: _SHOWN - 1] + "…"

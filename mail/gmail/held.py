"""Proved tokens between the last look and the read-back of one act, in this process alone.

Never stored: another process, or a later phase, has to prove its own.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from uuid import UUID

from mail.gmail.proofs import Proven

#: An act is over by then (ADR-016), and so is what it held.
_SECONDS = 120.0


@dataclass(slots=True)
class Held:
    """Both tokens of one act; `sent_id` is Gmail's id of what was posted."""

    reads: Proven
    sends: Proven
    sent_id: str = ""
    until: float = field(default_factory=lambda: time.monotonic() + _SECONDS)


class HeldTokens:
    """What this process holds, by effect."""

    def __init__(self) -> None:
        self._by_effect: dict[UUID, Held] = {}

    def keep(self, effect_id: UUID, held: Held) -> None:
        """Hold it, and let go of what is over its time."""
        now = time.monotonic()
        self._by_effect = {one: kept for one, kept in self._by_effect.items() if kept.until > now}
        self._by_effect[effect_id] = held

    def get(self, effect_id: UUID) -> Held | None:
        """What is held for an act and still in time."""
        held = self._by_effect.get(effect_id)
        return held if held is not None and held.until > time.monotonic() else None

    def forget(self, effect_id: UUID) -> Held | None:
        """Let go of it, and give it back for its last use."""
        held = self.get(effect_id)
        self._by_effect.pop(effect_id, None)
        return held

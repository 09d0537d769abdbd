"""What one socket has been sent and has acknowledged: numbers only, so that it never grows.

Daphne never drains, so the server cannot see a slow client: the client says what it took. One with
too many unacknowledged frames gets a gap, and nothing more until it has caught up.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

#: Frames that may be under way to one client.
LIMIT = 500


@dataclass(slots=True)
class Window:
    """`position` is the last event that this client got, skipped or resynced beyond."""

    position: int
    limit: int = LIMIT
    suspended: bool = False
    _under_way: deque[int] = field(default_factory=deque)

    @property
    def is_full(self) -> bool:
        """Whether another frame would be one too many."""
        return len(self._under_way) >= self.limit

    def sent(self, seq: int) -> None:
        """A frame has gone out."""
        self.position = seq
        self._under_way.append(seq)

    def skipped(self, seq: int) -> None:
        """This client's filter leaves an event out."""
        self.position = seq

    def acknowledge(self, seq: int) -> None:
        """The client has everything up to here: from us, or by reading the log itself."""
        while self._under_way and self._under_way[0] <= seq:
            self._under_way.popleft()
        self.position = max(self.position, seq)
        if len(self._under_way) <= self.limit // 2:
            self.suspended = False

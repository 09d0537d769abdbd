"""Which of the due pipelines this process looks ahead to: workers share them out by their ids.

Workers that look at the same moment would see the same oldest ones, and all but one of them in
vain. Whoever has lost one to another prefers those of another kind from then on: each id is of one
of as many kinds as there are workers. A worker that has lost none takes the oldest. One that was
left to others is taken all the same if it still waits a moment later, so that none is left for
ever.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.conf import settings

from pipelines.services import claims

#: For how long the oldest one is left to another worker, in seconds.
PATIENCE = 0.1
#: How many are looked through at most for those of one's own kind.
_WINDOW = 200


@dataclass(slots=True)
class Place:
    """`kind` is what this process prefers, once it has met another one.

    `passed` is an oldest one that was left to another, since the moment `since` (monotonic).
    """

    kind: int | None = None
    passed: UUID | None = None
    since: float = 0.0

    def window(self, count: int) -> int:
        """How many of the oldest `choose` should know, where so many are wanted."""
        return count if self.kind is None else max(count, min(2 * count * _kinds(), _WINDOW))

    def choose(self, waiting: Sequence[UUID], count: int) -> list[UUID]:
        """So many of them, oldest first. `waiting` are the oldest that are due, in their order."""
        kinds = _kinds()
        mine = [one for one in waiting if self.kind in (None, one.int % kinds)][:count]
        if len(mine) < count:
            # The youngest of the others: those that another worker comes to last.
            others = [one for one in waiting if one not in mine]
            mine += others[::-1][: count - len(mine)]
        if waiting and waiting[0] not in mine and self._has_waited(waiting[0]):
            return [*waiting[:count]]
        return [one for one in waiting if one in mine]

    def meet(self, lost: UUID) -> None:
        """Another worker has taken this one: it stands where those of its kind are."""
        self.kind = (lost.int + 1) % _kinds()

    def _has_waited(self, oldest: UUID) -> bool:
        """Whether it was left to others for long enough; from now on it is, if it was not."""
        if oldest == self.passed:
            return time.monotonic() - self.since >= PATIENCE
        self.passed, self.since = oldest, time.monotonic()
        return False


def _kinds() -> int:
    return max(1, math.ceil(int(settings.PIPELINE_CONCURRENCY) / claims.share()))

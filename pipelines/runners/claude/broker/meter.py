"""What one run has used by our own count, and when it is enough.

Where CLAUDE_PRICES says what tokens cost, money is the bound. In any case a run asks its model so
many times for each of its turns, and no more: whatever the client says that it cost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from pipelines.runners.claude.broker.prices import Prices
from pipelines.runners.claude.broker.requests import Refused
from pipelines.runners.claude.broker.usage import Reading, Tokens

#: Requests for each of a run's turns: side questions, a stream asked for again, a subagent.
REQUESTS_A_TURN = 5


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a run may use: US dollars, and turns of its model."""

    usd: Decimal
    turns: int

    @property
    def requests(self) -> int:
        """How many times it may ask its model."""
        return self.turns * REQUESTS_A_TURN


@dataclass(frozen=True, slots=True)
class Tally:
    """What a run has used. `usd` is None where no prices are declared.

    `unread` are answers that ended before they said what they used. `enough` says why it was
    stopped, where it was.
    """

    requests: int = 0
    unread: int = 0
    tokens: Tokens = field(default_factory=Tokens)
    usd: Decimal | None = None
    enough: str = ""


class Meter:
    """Adds up what a run uses. Belongs to one thread; `tally` is read when that has ended."""

    def __init__(self, bounds: Bounds, prices: Prices) -> None:
        self._bounds = bounds
        self._prices = prices
        self._readings: list[Reading] = []
        self._enough = ""

    def admit(self) -> Reading:
        """One more request, and how to read what its answer uses; Refused when it is enough.

        What is being answered counts with what it has said so far.
        """
        if self._prices and self._usd() >= self._bounds.usd:
            self._enough = "the worker reached its budget"
        elif len(self._readings) >= self._bounds.requests:
            asked, turns = self._bounds.requests, self._bounds.turns
            self._enough = f"the worker asked its model {asked} times in a run of {turns} turns"
        if self._enough:
            raise Refused(402, "billing_error", f"budget-spent: {self._enough}")
        reading = Reading()
        self._readings.append(reading)
        return reading

    def forget(self, reading: Reading) -> None:
        """That request came to nothing that costs anything."""
        self._readings.remove(reading)

    def tally(self) -> Tally:
        """All of it."""
        return Tally(
            requests=len(self._readings),
            unread=sum(not reading.is_whole for reading in self._readings),
            tokens=sum((reading.tokens for reading in self._readings), Tokens()),
            usd=self._usd() if self._prices else None,
            enough=self._enough,
        )

    def _usd(self) -> Decimal:
        each = (self._prices.of(reading.model).of(reading.tokens) for reading in self._readings)
        return sum(each, Decimal(0))

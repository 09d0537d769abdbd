"""What one run has used by our own count, and when it is enough.

Where CLAUDE_PRICES says what tokens cost, money is the bound. In any case a run asks its model so
many times for each of its turns, and no more: whatever the client says that it cost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal

from pipelines.runners.claude.broker.prices import Prices
from pipelines.runners.claude.broker.requests import Refused, Request
from pipelines.runners.claude.broker.usage import Reading, Tokens, Use

#: Requests for each of a run's turns: side questions, a stream asked for again, a subagent.
REQUESTS_A_TURN = 5
#: Bytes of a request for each of its tokens, where the API has not said how many it has.
_FEWEST_BYTES = 2
#: Requests of any kind for each of those: what costs nothing is counted against our key too.
_OF_ANY_KIND = 20


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a run may use: US dollars, and turns of its model."""

    usd: Decimal
    turns: int

    @property
    def requests(self) -> int:
        """How many times it may ask its model."""
        return self.turns * REQUESTS_A_TURN

    @property
    def of_any_kind(self) -> int:
        """How many times it may ask at all, for nothing or in vain as well."""
        return self.requests * _OF_ANY_KIND


@dataclass(frozen=True, slots=True)
class Tally:
    """What a run has used. `usd` is None where no prices are declared.

    `unread` are answers that ended before they said what they used: `usd` has the most that they
    may have cost. `enough` says why it was stopped, where it was.
    """

    requests: int = 0
    unread: int = 0
    tokens: Tokens = field(default_factory=Tokens)
    usd: Decimal | None = None
    enough: str = ""


#: More than that is no figure, nor does a row hold it: who stands before the API may say anything.
_MOST_USD = Decimal(100_000)


class Meter:
    """Adds up what a run uses. Belongs to one thread; `tally` is read when that has ended."""

    def __init__(
        self, bounds: Bounds, prices: Prices, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._bounds = bounds
        self._prices = prices
        self._clock = clock
        self._readings: list[Reading] = []
        self._asked = 0
        self._enough = ""
        self._settled = asyncio.Event()

    async def admit(self, request: Request) -> Reading:
        """One more request, and how to read what its answer uses; Refused when it is enough.

        What is being answered counts with what it has said so far. Where all that it may come to
        would leave nothing, the next one waits for its end.
        """
        self._asked += 1
        if self._asked > self._bounds.of_any_kind:
            self._enough = f"the worker asked the Messages API {self._asked - 1} times"
        if not request.costs:
            self._require_not_enough()
            return Reading()
        self._require_prices(request)
        while not self._is_enough() and not self._has_room():
            self._settled.clear()
            await self._settled.wait()
        self._require_not_enough()
        asked = Use(request.model, Tokens(len(request.body) // _FEWEST_BYTES, request.most))
        reading = Reading(asked, self._clock())
        self._readings.append(reading)
        return reading

    def settle(self, reading: Reading, *, goes_on: bool) -> None:
        """Nothing more of that answer comes; it may be written on all the same."""
        reading.close(None if goes_on else self._clock() - reading.began)
        self._settled.set()

    def forget(self, reading: Reading) -> None:
        """That request came to nothing that costs anything."""
        self._readings.remove(reading)

    def tally(self) -> Tally:
        """All of it."""
        return Tally(
            requests=len(self._readings),
            unread=sum(not reading.is_whole for reading in self._readings),
            tokens=sum((reading.tokens for reading in self._readings), Tokens()),
            usd=min(self._usd(), _MOST_USD) if self._prices else None,
            enough=self._enough,
        )

    def _require_not_enough(self) -> None:
        if self._enough:
            raise Refused(402, "billing_error", f"budget-spent: {self._enough}")

    def _require_prices(self, request: Request) -> None:
        """Refused for a model of which nobody has said what it costs: it may cost anything."""
        for model in request.models if self._prices else ():
            if not self._prices.has(model):
                said = f"no-price: CLAUDE_PRICES names no price of {model[:64]!r}"
                raise Refused(400, "invalid_request_error", said)

    def _is_enough(self) -> bool:
        if self._prices and self._usd() >= self._bounds.usd:
            self._enough = "the worker reached its budget"
        elif len(self._readings) >= self._bounds.requests:
            asked, turns = self._bounds.requests, self._bounds.turns
            self._enough = f"the worker asked its model {asked} times in a run of {turns} turns"
        return bool(self._enough)

    def _has_room(self) -> bool:
        """Whether what is being answered leaves something, whatever it comes to."""
        if not self._prices or not any(reading.is_open for reading in self._readings):
            return True
        at_most = sum((self._price(one, one.at_most) for one in self._readings), Decimal(0))
        return at_most < self._bounds.usd

    def _usd(self) -> Decimal:
        each = (
            self._price(one, one.uses if one.is_open else one.at_most) for one in self._readings
        )
        return sum(each, Decimal(0))

    def _price(self, reading: Reading, uses: Iterable[Use]) -> Decimal:
        """By the model that answered; by the one that was asked where no price names that."""
        each = (
            self._prices.of(use.model or reading.model, reading.asked.model).of(
                use.tokens, hour=use.hour
            )
            for use in uses
        )
        return sum(each, Decimal(0))

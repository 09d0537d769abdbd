"""What tokens cost, as the operator declares it in CLAUDE_PRICES: nobody else tells us."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.conf import settings

from guards.exceptions import InvalidInput
from pipelines.runners.claude.broker.usage import Tokens

_FIELD = "CLAUDE_PRICES"
_MILLION = 1_000_000
#: What the API asks for a cache write that stays for an hour, in prices of its input.
_HOUR = 2
_NAMES = ("input", "output", "cache_write", "cache_read")


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens of each kind."""

    input: Decimal
    output: Decimal
    cache_write: Decimal
    cache_read: Decimal

    def of(self, tokens: Tokens, *, hour: int = 0) -> Decimal:
        """What so many tokens cost, `hour` of those written to the cache for an hour."""
        each = (Decimal(getattr(tokens, name)) * getattr(self, name) for name in _NAMES)
        more = max(Decimal(0), _HOUR * self.input - self.cache_write)
        return (sum(each, Decimal(0)) + hour * more) / _MILLION


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices by how a model's name begins; the longest beginning counts, and "" names any."""

    known: Mapping[str, Price]

    def __bool__(self) -> bool:
        return bool(self.known)

    def has(self, model: str) -> bool:
        """Whether any names this model."""
        return any(model.startswith(name) for name in self.known)

    def of(self, *models: str) -> Price:
        """The price of the first of the models that any names; else the dearest of each kind."""
        for model in models:
            named = [name for name in self.known if model and model.startswith(name)]
            if named:
                return self.known[max(named, key=len)]
        every = self.known.values()
        return Price(**{name: max(getattr(price, name) for price in every) for name in _NAMES})


def declared() -> Prices:
    """What CLAUDE_PRICES says; InvalidInput where that is no table of prices."""
    try:
        said = json.loads(settings.CLAUDE_PRICES or "{}")
    except ValueError as error:
        raise InvalidInput(f"CLAUDE_PRICES is no JSON: {error}", field=_FIELD) from error
    if not isinstance(said, dict):
        raise InvalidInput("CLAUDE_PRICES is no JSON object of models", field=_FIELD)
    return Prices({model: _price(model, row) for model, row in said.items()})


def _price(model: str, row: Any) -> Price:
    if not isinstance(row, dict) or set(row) != set(_NAMES):
        raise InvalidInput(f"{model} needs exactly {', '.join(_NAMES)}", field=_FIELD)
    return Price(**{name: _amount(model, row[name]) for name in _NAMES})


def _amount(model: str, value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MILLION:
        raise InvalidInput(f"{model} has a price that is no amount: {value!r}", field=_FIELD)
    return Decimal(str(value))

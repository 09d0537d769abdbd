"""Fewer of what differs in its name alone: the normal run takes some, `make soak` all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest


def without(names: Iterable[str], soaked: Collection[str], *marks: pytest.MarkDecorator) -> list:
    """The names as parameters; those of `soaked` for `make soak` alone, each with `marks`."""
    return [
        pytest.param(name, marks=[*marks, pytest.mark.soak] if name in soaked else [*marks])
        for name in names
    ]


def repeated(reasons: Mapping[str, Any]) -> set[str]:
    """The names whose reason an earlier one has already."""
    seen: set[Any] = set()
    return {
        name
        for name, reason in reasons.items()
        if reason in seen or seen.add(reason)  # type: ignore[func-returns-value]
    }


def with_one_use(faults: Iterable[str], soaked: Collection[str]) -> list:
    """Each fault at either credential in turn, those of `soaked` and the other use for soak."""
    pairs = [(fault, use) for fault in faults for use in ("read", "send")]
    chosen = {
        (fault, ("read", "send")[number % 2])
        for number, fault in enumerate(one for one in faults if one not in soaked)
    }
    return [
        pytest.param(*pair, marks=[] if pair in chosen else [pytest.mark.soak]) for pair in pairs
    ]

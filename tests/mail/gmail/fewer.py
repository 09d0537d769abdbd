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
    """Pairs of a fault and a credential that has it: each fault at either in turn, and the rest.

    The rest, with those of `soaked`, is for `make soak` alone.
    """
    faults = list(faults)
    chosen = [
        (fault, ("read", "send")[number % 2])
        for number, fault in enumerate(one for one in faults if one not in soaked)
    ]
    pairs = [(fault, use) for fault in faults for use in ("read", "send")]
    others = [pair for pair in pairs if pair not in chosen]
    return [
        pytest.param(chosen, id="one of each"),
        pytest.param(others, id="the others", marks=pytest.mark.soak),
    ]

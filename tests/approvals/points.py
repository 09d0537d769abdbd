"""Many cases of one table: which of them both databases are asked, and one world for all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import transaction


def on_both(names: Iterable[str], *both: str, soak: Iterable[str] = ()) -> list[Any]:
    """Parameters of all `names`, of which the second database is asked `both` alone.

    Those of `soak` are for the long run.
    """
    names, long = list(names), frozenset(soak)
    assert {*both} | long <= set(names)
    marks = {
        name: [pytest.mark.one_database] * (name not in both) + [pytest.mark.soak] * (name in long)
        for name in names
    }
    return [pytest.param(name, marks=marks[name]) for name in names]


@contextmanager
def undone() -> Iterator[None]:
    """Everything written inside, rows and triggers, is gone afterwards.

    A savepoint without `atomic`, so that services see the same nesting as everywhere.
    """
    before = transaction.savepoint()
    try:
        yield
    finally:
        transaction.savepoint_rollback(before)

"""Many cases of one table: which of them both databases are asked, and one world for all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import transaction


def on_both(names: Iterable[str], *both: str) -> list[Any]:
    """Parameters of all `names`, of which the second database is asked `both` alone."""
    names = list(names)
    assert set(both) <= set(names)
    one = pytest.mark.one_database
    return [name if name in both else pytest.param(name, marks=one) for name in names]


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

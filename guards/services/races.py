"""Somebody else may write the same thing between our look and our row; the database decides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import IntegrityError

from guards.exceptions import Conflict
from guards.services.units import unit_of_work


@contextmanager
def lost_to(conflict: Conflict) -> Iterator[None]:
    """Write inside a savepoint; what a constraint or trigger refuses is this conflict."""
    try:
        with unit_of_work():
            yield
    except IntegrityError as error:
        raise conflict from error

"""A unit of work has one last word, and a failed inner unit takes its notes with it."""

from __future__ import annotations

import pytest

from guards.services.units import current_unit, unit_of_work
from guards.signals import unit_closing


@pytest.mark.django_db
def test_the_notes_of_a_failed_inner_unit_are_gone_when_the_outer_one_closes() -> None:
    seen: list[list[object]] = []

    def listen(unit: object, **_: object) -> None:
        seen.append(list(unit.notes))  # type: ignore[attr-defined]

    unit_closing.connect(listen)
    try:
        with unit_of_work() as unit:
            unit.notes.append("kept")
            with pytest.raises(ZeroDivisionError), unit_of_work() as inner:
                inner.notes.append("dropped")
                raise ZeroDivisionError
            with unit_of_work() as inner:
                inner.notes.append("kept too")
    finally:
        unit_closing.disconnect(listen)
    assert seen == [["kept", "kept too"]]
    assert current_unit() is None

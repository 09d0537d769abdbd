"""Plots of the console: a bar chart drawn in the browser, and the same numbers as a table.

The chart is django-unfold's component (Chart.js, bundled); nothing is asked of another host. What a
plot shows is JSON in attributes, so that no script of a page is ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

#: Colours of parts that have no meaning of their own; console.css has them for light and dark.
COLOURS = tuple(f"var(--cs-part-{number})" for number in range(1, 7))
#: What everything beyond the named parts is drawn with.
REST = "var(--cs-quiet)"

_INK = "#8b93a1"
_GRID = "rgba(139,147,161,.18)"

Number = int | float


@dataclass(frozen=True, slots=True)
class Part:
    """One colour of a plot: the key of its numbers, its word, its colour."""

    key: str
    word: str
    colour: str


@dataclass(frozen=True, slots=True)
class Plot:
    """One bar chart, and the same numbers as rows for people who would rather read.

    `summary` is written beside the title. `opened` shows the table at once.
    """

    title: str
    chart: str
    options: str
    headers: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    summary: str
    opened: bool = False


def per_day(
    title: str,
    days: Sequence[date],
    parts: Sequence[Part],
    numbers: Mapping[tuple[date, str], Number],
    *,
    summary: str,
    written: Callable[[Number], str] = str,
    whole: bool = True,
) -> Plot:
    """Stacked bars, one a day. `whole` numbers have no fractions on the axis."""
    datasets = [
        {
            "label": part.word,
            "data": [numbers.get((day, part.key), 0) for day in days],
            "backgroundColor": part.colour,
            "maxTicksXLimit": 7,
            "displayYAxis": True,
        }
        for part in parts
    ]
    chart = {"labels": [f"{day.day} {day:%b}" for day in days], "datasets": datasets}
    rows = tuple(
        (
            f"{day:%a} {day.day} {day:%b}",
            *(written(numbers.get((day, part.key), 0)) for part in parts),
        )
        for day in reversed(days)
    )
    headers = ("Day", *(part.word for part in parts))
    return Plot(title, json.dumps(chart), json.dumps(_stacked(whole)), headers, rows, summary)


def bars(
    title: str,
    headers: Sequence[str],
    rows: Iterable[Sequence[object]],
    values: Sequence[Number],
    *,
    summary: str,
) -> Plot:
    """Lying bars, one for each row, in the order of the rows; the table stands open beside it."""
    shown = tuple(tuple(row) for row in rows)
    dataset = {"data": list(values), "backgroundColor": COLOURS[0], "displayYAxis": True}
    chart = {"labels": [str(row[0]) for row in shown], "datasets": [dataset]}
    return Plot(
        title,
        json.dumps(chart),
        json.dumps(_lying()),
        tuple(headers),
        shown,
        summary,
        opened=True,
    )


def _stacked(whole: bool) -> dict[str, object]:
    numbers: dict[str, object] = {"color": _INK, "maxTicksLimit": 5}
    if whole:
        numbers["precision"] = 0
    return {
        **_common(),
        "plugins": {"legend": _legend(), "tooltip": {"mode": "index", "intersect": False}},
        "scales": {
            "x": {
                "stacked": True,
                "grid": {"display": False},
                "ticks": {"color": _INK, "maxTicksLimit": 7, "maxRotation": 0},
            },
            "y": {
                "stacked": True,
                "beginAtZero": True,
                "border": {"display": False},
                "grid": {"color": _GRID},
                "ticks": numbers,
            },
        },
    }


def _lying() -> dict[str, object]:
    return {
        **_common(),
        "indexAxis": "y",
        "plugins": {"legend": {"display": False}},
        "scales": {
            "x": {
                "beginAtZero": True,
                "border": {"display": False},
                "grid": {"color": _GRID},
                "ticks": {"color": _INK, "maxTicksLimit": 5},
            },
            "y": {"grid": {"display": False}, "ticks": {"color": _INK, "autoSkip": False}},
        },
    }


def _common() -> dict[str, object]:
    return {
        "animation": False,
        "maxBarThickness": 16,
        "maintainAspectRatio": False,
        "datasets": {"bar": {"borderRadius": 3}},
    }


def _legend() -> dict[str, object]:
    labels = {"boxWidth": 8, "boxHeight": 8, "usePointStyle": True, "color": _INK}
    return {"display": True, "align": "start", "position": "bottom", "labels": labels}

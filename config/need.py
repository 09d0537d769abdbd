"""One thing that waits on the operator, and where such things come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

#: How many rows of one source the index shows; the rest is one click away in its list.
ROWS_PER_SOURCE = 20


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that waits: since when, what, why, and the act that answers it.

    `act` is the label; with `post` it is a button that POSTs to `url`, else a link.
    """

    kind: str
    icon: str
    tone: str
    since: datetime
    title: str
    cause: str
    act: str
    url: str
    post: bool = False
    label: str = ""


#: A kind of need: its name, what is counted, and how its rows read.
Source = tuple[str, Callable[[], QuerySet[Any, Any]], Callable[..., Iterator[Need]]]

"""Runs beside each other, for tests that start them one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from guards.process import Session, Several


def started(several: Several, argvs: Sequence[Sequence[str]], **given: Any) -> Session:
    """Ordered, and confirmed at once."""
    session = several.order(argvs, **given)
    several.confirm(session)
    return session

"""Conditions in SQL that SQLite and PostgreSQL read alike: what one UPDATE may not do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def written_once(column: str) -> str:
    """SQL that is true for an UPDATE which clears or rewrites a moment."""
    return f"OLD.{column} IS NOT NULL AND (NEW.{column} IS NULL OR NEW.{column} <> OLD.{column})"


def not_a_move(column: str, moves: Mapping[Any, frozenset[Any]]) -> str:
    """SQL that is true for an UPDATE which takes `column` where it must not go."""
    allowed = " OR ".join(
        f"(OLD.{column} = '{old}' AND NEW.{column} IN ({_listed(new)}))"
        for old, new in moves.items()
    )
    return f"OLD.{column} <> NEW.{column} AND NOT ({allowed})"


def _listed(names: frozenset[Any]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))

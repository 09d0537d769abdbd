"""What upper apps plug into guards in their `ready()`: what the database refuses, and scopes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Protection:
    """How one table is kept by triggers: every column (`columns` is empty), or these only."""

    model_label: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RowRule:
    """What one row may never become, as SQL that SQLite and PostgreSQL read alike.

    `broken` is a condition over `NEW` (and `OLD`, where only updates are meant); `events` are
    `insert` and `update`. `serialised` makes writers of such rules wait for each other on
    PostgreSQL: for conditions that look into other tables.
    """

    model_label: str
    name: str
    broken: str
    message: str
    events: tuple[str, ...] = ("insert", "update")
    serialised: bool = False


_protections: dict[str, Protection] = {}
_row_rules: dict[str, RowRule] = {}
_scopes: dict[str, str] = {}
_of_people: set[str] = set()


def append_only(model_label: str) -> None:
    """Refuse every UPDATE and DELETE of this model's table, whoever writes."""
    _protections[model_label.lower()] = Protection(model_label)


def frozen_columns(model_label: str, columns: tuple[str, ...]) -> None:
    """Refuse an UPDATE that changes one of these fields, and every DELETE."""
    if not columns:
        raise ValueError("name the columns, or use append_only")
    _protections[model_label.lower()] = Protection(model_label, columns)


def protections() -> Iterable[Protection]:
    """All protected tables, by label."""
    return [_protections[label] for label in sorted(_protections)]


def refuse_rows(rule: RowRule) -> None:
    """Refuse what this rule calls broken. Its name is unique in the house."""
    _row_rules[rule.name] = rule


def refuse_update(model_label: str, name: str, when: str, message: str) -> None:
    """Refuse an UPDATE for which the SQL condition over `OLD` and `NEW` is true."""
    refuse_rows(RowRule(model_label, name, when, message, events=("update",)))


def forget_rows(name: str) -> None:
    """Take a rule out again: for an app that is switched off, and for tests of rules."""
    _row_rules.pop(name, None)


def row_rules() -> Iterable[RowRule]:
    """All rules on rows, by name."""
    return [_row_rules[name] for name in sorted(_row_rules)]


def register_scopes(app: str, scopes: Mapping[str, str], *, of_people: Iterable[str] = ()) -> None:
    """Name scopes that tokens may carry, with a sentence: `{"messages:read": "Read …"}`.

    `of_people` are those of them that only the token of a human identity carries.
    """
    for name, meaning in scopes.items():
        if ":" not in name:
            raise ValueError(f"scope {name!r} of {app} is not of the form noun:verb")
        _scopes[name] = meaning
    _of_people.update(of_people)


def scopes() -> Mapping[str, str]:
    """All scopes and what they allow, by name."""
    return {name: _scopes[name] for name in sorted(_scopes)}


def scopes_of_people() -> frozenset[str]:
    """Scopes that only the token of a human identity carries."""
    return frozenset(_of_people)

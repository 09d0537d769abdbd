"""What upper apps plug into guards in their `ready()`: protected tables, and scopes of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Protection:
    """How one table is kept by triggers: every column (`columns` is empty), or these only."""

    model_label: str
    columns: tuple[str, ...] = ()


_protections: dict[str, Protection] = {}
_scopes: dict[str, str] = {}


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


def missing_triggers() -> list[str]:
    """The triggers that should stand in the default database, and do not (for `doctor`)."""
    from guards import triggers

    return triggers.missing()


def register_scopes(app: str, scopes: Mapping[str, str]) -> None:
    """Name scopes that tokens may carry, with a sentence: `{"messages:read": "Read …"}`."""
    for name, meaning in scopes.items():
        if ":" not in name:
            raise ValueError(f"scope {name!r} of {app} is not of the form noun:verb")
        _scopes[name] = meaning


def scopes() -> Mapping[str, str]:
    """All scopes and what they allow, by name."""
    return {name: _scopes[name] for name in sorted(_scopes)}

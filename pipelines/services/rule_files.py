"""Planning rules as a file: written by hand or exported, and taken in whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from guards.exceptions import NotFound
from guards.models import Identity
from guards.services.units import unit_of_work
from guards.types import Asker
from pipelines import reading, writing
from pipelines.exceptions import RuleInvalid
from pipelines.models import Rule
from pipelines.services import rules

_KEYS = frozenset({"name", "position", "active", "identity", "sender", "kind", "match", "calls"})
_TYPES: Mapping[str, type] = {
    "name": str,
    "position": int,
    "active": bool,
    "identity": str,
    "sender": str,
    "kind": str,
    "match": str,
    "calls": list,
}

#: Rules of one file, and the distance of positions that the file does not name.
MAX_RULES = 1_000
STEP = 10


def load(path: Path, *, by: Asker, replace: bool = False) -> list[str]:
    """Save every rule of a file, in its order; their names. `replace` removes all others.

    RuleInvalid or DocumentUnreadable names the first fault (`rules[2].match`), and nothing has
    changed then. A rule without `position` stands where it stands in the file.
    """
    wanted = [_read(entry, number) for number, entry in enumerate(_entries(path))]
    names = [values["name"] for values in wanted]
    with unit_of_work():
        for number, values in enumerate(wanted):
            if values["name"] in names[:number]:
                raise RuleInvalid("another rule has this name", field=f"rules[{number}].name")
            _save(values, number, by)
        if replace:
            for name in Rule.objects.exclude(name__in=names).values_list("name", flat=True):
                rules.remove_rule(name=name, by=by)
    return names


def export() -> str:
    """All rules as such a file, in the order in which they are asked."""
    return writing.as_yaml({"rules": [as_document(rule) for rule in Rule.objects.all()]})


def as_document(rule: Rule) -> dict[str, Any]:
    """One rule as a file says it; what is usual is left out."""
    found: dict[str, Any] = {"name": rule.name, "position": rule.position}
    if not rule.is_active:
        found["active"] = False
    if rule.identity is not None:
        found["identity"] = rule.identity.handle
    if rule.sender:
        found["sender"] = rule.sender
    return found | {"kind": str(rule.kind), "match": rule.match, "calls": rule.calls}


def _entries(path: Path) -> list[Any]:
    document = reading.read_file(path)
    entries = document.get("rules")
    if not isinstance(entries, list) or set(document) != {"rules"}:
        raise RuleInvalid("a file of rules is one list under `rules`", field="rules")
    if len(entries) > MAX_RULES:
        raise RuleInvalid(f"holds more than {MAX_RULES} rules", field="rules")
    return entries


def _read(entry: Any, number: int) -> dict[str, Any]:
    place = f"rules[{number}]"
    if not isinstance(entry, dict):
        raise RuleInvalid("is one mapping", field=place)
    for key, value in entry.items():
        if key not in _KEYS:
            raise RuleInvalid("unknown key", field=f"{place}.{key}")
        if type(value) is not _TYPES[key]:
            raise RuleInvalid(f"is not of the type {_TYPES[key].__name__}", field=f"{place}.{key}")
    for key in ("name", "match", "calls"):
        if key not in entry:
            raise RuleInvalid("is required", field=f"{place}.{key}")
    if not 0 <= entry.get("position", 0) <= 1_000_000:
        raise RuleInvalid("lies between 0 and 1000000", field=f"{place}.position")
    return entry


def _save(values: Mapping[str, Any], number: int, by: Asker) -> None:
    try:
        rules.save_rule(
            name=values["name"],
            match=values["match"],
            calls=values["calls"],
            kind=values.get("kind", Rule.Kind.WORDS),
            sender=values.get("sender", ""),
            identity=_identity(values.get("identity")),
            position=values.get("position", (number + 1) * STEP),
            is_active=values.get("active", True),
            by=by,
        )
    except (RuleInvalid, NotFound) as error:
        raise RuleInvalid(error.detail, field=f"rules[{number}].{error.field}") from error


def _identity(handle: str | None) -> Identity | None:
    if handle is None:
        return None
    found = Identity.objects.filter(handle=handle).first()
    if found is None:
        raise NotFound(f"there is no identity {handle!r}", field="identity")
    return found

"""The contracts of import-linter cover the code as it is; foreign keys point down only."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.db.models import ForeignKey

ROOT = Path(__file__).resolve().parent.parent.parent
CONTRACTS: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
    "importlinter"
]["contracts"]
#: From the highest app to the lowest.
LAYERS: list[str] = CONTRACTS[0]["layers"]

#: The doors of every app, and the further ones of guards and the rooms of no consequence.
DOORS = {"services", "selectors", "types", "signals", "registry", "exceptions", "models"}
MORE_DOORS = {
    "guards": {
        "unseen",
        *("addresses", "openpgp", "secrets", "documents", "process", "trust", "queue", "fronts"),
        "gates",
    }
}


def test_the_layers_are_the_installed_apps():
    ours = [name for name in settings.INSTALLED_APPS if (ROOT / name).is_dir()]
    assert list(reversed(LAYERS)) == ours


def test_foreign_keys_point_down_only():
    height = {name: number for number, name in enumerate(reversed(LAYERS))}
    upward = [
        f"{model._meta.label}.{field.name}"
        for model in apps.get_models()
        if model._meta.app_label in height
        for field in model._meta.get_fields()
        if isinstance(field, ForeignKey)
        and height.get(field.related_model._meta.app_label, -1) > height[model._meta.app_label]
    ]
    assert upward == []


@pytest.mark.parametrize("app", LAYERS[1:])
def test_every_room_is_a_door_or_protected(app: str):
    protected = {
        module
        for contract in CONTRACTS
        if contract["type"] == "protected"
        for module in contract["protected_modules"]
    }
    rooms = {
        path.stem
        for path in (ROOT / app).iterdir()
        if (path.suffix == ".py" and path.stem != "__init__")
        or (path.is_dir() and list(path.glob("*.py")) and path.name != "migrations")
    }
    open_rooms = rooms - DOORS - MORE_DOORS.get(app, set())
    unprotected = {f"{app}.{room}" for room in open_rooms} - protected
    assert unprotected == set(), "name them in a protected contract in pyproject.toml"

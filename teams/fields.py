"""A JSON column whose stored text is what the chain hashes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import rfc8785
from django.db import models


class CanonicalJSONField(models.TextField[Any, Any]):
    """A mapping, stored as its RFC 8785 text, on every database byte for byte the same.

    PostgreSQL's `jsonb` would normalise, and hashing a parsed value would cost a second
    serialisation per event: the log hashes the text that the table holds.
    """

    _pyi_private_set_type: Any
    _pyi_private_get_type: Any

    def from_db_value(self, value: str | None, *_: object) -> Any:
        """The mapping that the text says; the text itself where it is no JSON (tampered)."""
        if value is None:
            return None
        try:
            return json.loads(value)
        except ValueError:
            return value

    def get_prep_value(self, value: Any) -> Any:
        """The canonical text of a mapping."""
        if isinstance(value, Mapping):
            return rfc8785.dumps(dict(value)).decode()
        return super().get_prep_value(value)

    def value_to_string(self, obj: models.Model) -> str:
        """For serialisation: the canonical text."""
        return str(self.get_prep_value(self.value_from_object(obj)))

"""Strict reading of JSON documents: every refusal names the exact place and the rule.

Nothing is converted, repaired or dropped. A place is a JSON path such as `$.reflection.signals[3]`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NoReturn, TypeVar

from guards.exceptions import InvalidInput
from pipelines import write_sets
from pipelines.exceptions import ContractInvalid
from pipelines.types import DocumentRule

Choice = TypeVar("Choice", bound=Enum)

#: The largest document that is read from text, in bytes.
MAX_DOCUMENT_BYTES = 4_000_000

#: Nesting of a value inside a document beyond which nothing is taken.
MAX_DEPTH = 64

#: The longest path of a file that a document may name, in characters.
MAX_PATH = 1_000

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True)
class Place:
    """A value and where it stands. Each method takes one form, and refuses every other."""

    value: Any
    step: str | int = "$"
    above: Place | None = None

    @property
    def path(self) -> str:
        """Where it stands, as a JSON path; worked out only when somebody is told."""
        steps: list[str] = []
        place: Place | None = self
        while place is not None:
            steps.append(_spelled(place.step) if place.above is not None else str(place.step))
            place = place.above
        return "".join(reversed(steps))

    def refuse(self, rule: DocumentRule, reason: str) -> NoReturn:
        """ContractInvalid for this place."""
        raise ContractInvalid(f"{self.path} {reason}", field=self.path, rule=rule.value)

    def key(self, name: str) -> Place:
        """The value under a key that is known to be there."""
        return Place(self.value[name], name, self)

    def members(
        self,
        *,
        required: Iterable[str],
        optional: Iterable[str] = (),
        stamped: Collection[str] = (),
    ) -> dict[str, Place]:
        """An object with all of `required`, any of `optional`, and nothing else.

        `stamped` are keys that only the server writes: giving one is refused by a rule of its own.
        """
        if not isinstance(self.value, Mapping):
            self.refuse(DocumentRule.WRONG_TYPE, f"must be an object, not {_shown(self.value)}")
        wanted = list(required)
        known = {*wanted, *optional}
        for name in self.value:
            if not isinstance(name, str):
                self.refuse(DocumentRule.WRONG_TYPE, "has a key that is not text")
            if name in known:
                continue
            place = Place(None, name, self)
            if name in stamped:
                place.refuse(DocumentRule.SERVER_STAMPED, "is set by the server: leave it out")
            place.refuse(DocumentRule.UNKNOWN_KEY, f"is unknown: there is {_list(known)}")
        for name in wanted:
            if name not in self.value:
                missing = Place(None, name, self)
                missing.refuse(DocumentRule.MISSING_KEY, "is required")
        return {name: self.key(name) for name in self.value}

    def items(self, *, most: int) -> list[Place]:
        """A list of at most so many entries."""
        if not isinstance(self.value, list):
            self.refuse(DocumentRule.WRONG_TYPE, f"must be a list, not {_shown(self.value)}")
        if len(self.value) > most:
            self.refuse(DocumentRule.TOO_LARGE, f"has {len(self.value)} entries; {most} are taken")
        return [Place(entry, index, self) for index, entry in enumerate(self.value)]

    def text(self, *, most: int, blank: bool = False) -> str:
        """A string of at most `most` bytes of UTF-8; with something in it unless `blank`."""
        if not isinstance(self.value, str):
            self.refuse(DocumentRule.WRONG_TYPE, f"must be text, not {_shown(self.value)}")
        self._check_characters(self.value)
        size = len(self.value.encode())
        if size > most:
            self.refuse(DocumentRule.TOO_LARGE, f"has {size} bytes; {most} are taken")
        if not blank and not self.value.strip():
            self.refuse(DocumentRule.OUT_OF_RANGE, "is empty")
        return self.value

    def boolean(self) -> bool:
        """True or false."""
        if not isinstance(self.value, bool):
            self.refuse(DocumentRule.WRONG_TYPE, f"must be true or false, not {_shown(self.value)}")
        return self.value

    def integer(self, *, least: int, most: int) -> int:
        """A whole number within its bounds; `1.0` and `"1"` are none."""
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            self.refuse(
                DocumentRule.WRONG_TYPE, f"must be a whole number, not {_shown(self.value)}"
            )
        if not least <= self.value <= most:
            self.refuse(DocumentRule.OUT_OF_RANGE, f"must lie between {least} and {most}")
        return self.value

    def number(self, *, least: float, most: float) -> float:
        """A finite number within its bounds."""
        if not isinstance(self.value, int | float) or isinstance(self.value, bool):
            self.refuse(DocumentRule.WRONG_TYPE, f"must be a number, not {_shown(self.value)}")
        if not least <= self.value <= most:
            self.refuse(DocumentRule.OUT_OF_RANGE, f"must lie between {least:g} and {most:g}")
        return float(self.value)

    def choice(self, choices: type[Choice]) -> Choice:
        """One of these words."""
        words = [member.value for member in choices]
        if not isinstance(self.value, str) or self.value not in words:
            self.refuse(
                DocumentRule.OUT_OF_RANGE,
                f"must be one of {', '.join(words)}, not {_shown(self.value)}",
            )
        return choices(self.value)

    def relative_path(self) -> str:
        """A relative path in its one spelling, as write sets compare it."""
        path = self.text(most=4 * MAX_PATH)
        if len(path) > MAX_PATH:
            self.refuse(DocumentRule.TOO_LARGE, f"is longer than {MAX_PATH} characters")
        try:
            write_sets.check_path(path)
        except InvalidInput as error:
            self.refuse(DocumentRule.PATH, f"is no plain relative path: {error.detail}")
        return path

    def relative_paths(self, *, most: int) -> tuple[str, ...]:
        """A list of relative paths in which none stands twice."""
        found: dict[str, None] = {}
        for entry in self.items(most=most):
            path = entry.relative_path()
            if path in found:
                entry.refuse(DocumentRule.PATH, f"names {path!r} a second time")
            found[path] = None
        return tuple(found)

    def json(self, *, depth: int = MAX_DEPTH) -> Any:
        """Any JSON value that every database behind us keeps as it is, nested at most `depth`."""
        waiting = [(self, 0)]
        while waiting:
            place, level = waiting.pop()
            if level > depth:
                place.refuse(DocumentRule.TOO_LARGE, f"is nested deeper than {depth}")
            waiting += [(inner, level + 1) for inner in place._inner()]
        return self.value

    def json_object(self) -> dict[str, Any]:
        """A JSON object with any keys, storable as `json` has it."""
        if not isinstance(self.value, dict):
            self.refuse(DocumentRule.WRONG_TYPE, f"must be an object, not {_shown(self.value)}")
        self.json()
        return self.value

    def _inner(self) -> list[Place]:
        """What a storable value holds; nothing for a plain one."""
        value = self.value
        if isinstance(value, dict):
            for name in value:
                if not isinstance(name, str):
                    self.refuse(DocumentRule.WRONG_TYPE, "has a key that is not text")
                self._check_characters(name)
            return [self.key(name) for name in value]
        if isinstance(value, list):
            return self.items(most=len(value))
        if isinstance(value, str):
            self._check_characters(value)
        elif isinstance(value, float) and not math.isfinite(value):
            self.refuse(DocumentRule.NOT_STORABLE, "is not a finite number")
        elif value is not None and not isinstance(value, bool | int | float):
            self.refuse(DocumentRule.WRONG_TYPE, f"is no JSON value: {_shown(value)}")
        return []

    def _check_characters(self, text: str) -> None:
        if "\0" in text:
            self.refuse(DocumentRule.NOT_STORABLE, "holds a NUL character")
        if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
            self.refuse(DocumentRule.NOT_STORABLE, "holds half a character")


def parse(text: str | bytes) -> dict[str, Any]:
    """One JSON object from outside; ContractInvalid for whatever is not exactly that.

    A key that stands twice, NaN, nesting that no parser agrees on, and anything over 4 MB are
    refused here, before anybody reads a meaning into it.
    """
    root = Place(None)
    size = len(text.encode("utf-8", "surrogatepass")) if isinstance(text, str) else len(text)
    if size > MAX_DOCUMENT_BYTES:
        root.refuse(DocumentRule.TOO_LARGE, f"has {size} bytes; {MAX_DOCUMENT_BYTES} are taken")
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8")
        value = json.loads(decoded, object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        root.refuse(DocumentRule.TOO_LARGE, "is nested too deeply")
    except ValueError as error:
        root.refuse(DocumentRule.NOT_JSON, f"cannot be read as JSON: {str(error)[:200]}")
    if not isinstance(value, dict):
        root.refuse(DocumentRule.WRONG_TYPE, f"must be an object, not {_shown(value)}")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:64]!r} stands twice")
    return found


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def _spelled(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _PLAIN_KEY.fullmatch(step) else f"[{json.dumps(step[:60])}]"


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return f"{type(value).__name__} {ascii(value)[:60]}"

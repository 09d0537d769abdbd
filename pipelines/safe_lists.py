"""The lists of safe options: `safe_options.json`, with those of SAFE_OPTIONS_FILE over them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings

from pipelines.exceptions import OptionNotAllowed

OPTIONS_FILE = Path(__file__).with_name("safe_options.json")


@dataclass(frozen=True, slots=True)
class Program:
    """What one program may be given. Options are written as they are given: `-n`, `--name`.

    `flags` take no value, `values` take one, `optional` only an attached one, `pairs` two words.
    `signed` take a value that the owner must have signed; `code` likewise, and that value is code.
    `reads` are code that takes standard input for more of it, and so may not be given.
    `exact` are whole words. `code_words` counts the leading plain words that are code;
    `needs_code`: without any, standard input would be; `code_apart`: code is a word of its own, not
    letters behind an option, and begins with no plus. `runs` is how many plain words stand before
    another program's words; `feeds` says that words of the pipe are put behind those; `assignments`
    that NAME=VALUE may stand before. `single_dash`: options are whole words such as `-name`.
    `dashed_first`: a first word without a dash would be options. `stops_at_word`, `stops_at_code`:
    nothing behind is an option of this program. `ends_options`: `--` does what one expects.
    A word from mail may stand only where `mail_words`, may not begin with a character of `leading`
    nor hold a text of `without`, and begins with one of `starts` where there are any; a named value
    may not begin with `value_leading`. `refused` says why the program may not be used at all.
    """

    names: tuple[str, ...] = ()
    flags: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    pairs: frozenset[str] = frozenset()
    signed: frozenset[str] = frozenset()
    code: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()
    exact: frozenset[str] = frozenset()
    code_words: int = 0
    needs_code: bool = False
    code_apart: bool = False
    runs: int | None = None
    feeds: bool = False
    assignments: bool = False
    single_dash: bool = False
    dashed_first: bool = False
    stops_at_word: bool = False
    stops_at_code: bool = False
    ends_options: bool = True
    named: bool = True
    mail_words: bool = True
    leading: str = ""
    without: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()
    value_leading: str = ""
    refused: str = ""
    subcommands: Mapping[str, Program] | None = None

    @property
    def takes_value(self) -> frozenset[str]:
        """Options whose value is attached or the next word."""
        return self.values | self.signed | self.code


def programs() -> Mapping[str, Program]:
    """The lists of the program itself, with those of SAFE_OPTIONS_FILE over them.

    OptionNotAllowed when that file cannot be read: nothing runs by half a list.
    """
    return _of_version(_version())


def of_name(name: str) -> tuple[tuple[str, Program], ...]:
    """The lists that hold for a program of this name, each with what it is called."""
    return _matching(name, _version())


def _version() -> tuple[str, int, int]:
    """Which lists count at this moment: the file, when it was changed, its size."""
    path = settings.SAFE_OPTIONS_FILE
    if not path:
        return ("", 0, 0)
    try:
        status = Path(path).stat()
    except (OSError, ValueError) as error:
        raise OptionNotAllowed(f"SAFE_OPTIONS_FILE cannot be used: {error}") from error
    return (str(path), status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=1024)
def _matching(name: str, version: tuple[str, int, int]) -> tuple[tuple[str, Program], ...]:
    return tuple(
        (key, program)
        for key, program in _of_version(version).items()
        if any(fnmatchcase(name, pattern) for pattern in program.names)
    )


@lru_cache(maxsize=4)
def _of_version(version: tuple[str, int, int]) -> Mapping[str, Program]:
    path = version[0]
    if not path:
        return _shipped()
    try:
        own = json.loads(Path(path).read_text(encoding="utf-8"))
        if not isinstance(own, dict):
            raise ValueError("it is not one object of programs")
        kept = {name: program for name, program in _shipped().items() if name not in own}
        return kept | _parsed({name: entry for name, entry in own.items() if entry is not None})
    except (OSError, ValueError, RecursionError) as error:
        raise OptionNotAllowed(f"SAFE_OPTIONS_FILE cannot be used: {error}") from error


@cache
def _shipped() -> Mapping[str, Program]:
    return _parsed(json.loads(OPTIONS_FILE.read_text(encoding="utf-8")))


def _parsed(entries: Mapping[str, Any]) -> dict[str, Program]:
    return {name: _program(name, entry) for name, entry in entries.items()}


def _program(name: str, entry: Any) -> Program:
    """One entry, read strictly: an unknown or mistyped key would be a list that does not hold."""
    if not isinstance(entry, dict):
        raise ValueError(f"{name} is not an object")
    known = {field.name: field.default for field in fields(Program)}
    read: dict[str, Any] = {"names": (name,)}
    for key, value in entry.items():
        if key not in known:
            raise ValueError(f"{name}.{key} is unknown")
        read[key] = _field(f"{name}.{key}", known[key], key, value)
    return Program(**read)


def _field(place: str, default: Any, key: str, value: Any) -> Any:
    if key == "subcommands" and isinstance(value, dict):
        return _parsed(value)
    if isinstance(default, frozenset | tuple):
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            return type(default)(value)
    elif key == "runs" or (isinstance(default, int) and not isinstance(default, bool)):
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    elif type(value) is type(default):
        return value
    raise ValueError(f"{place} has the wrong type")

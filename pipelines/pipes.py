"""The pipe: one JSON value with its files, handed from stage to stage (DES-031).

A `process` stage's output replaces `data`; a `passthrough` stage's is looked at and dropped. With
`files: true` a `process` stage writes both parts, `{"data": …, "files": […]}`; without it the files
end there (DES-032, ADR 0055).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from pipelines import schema
from pipelines.exceptions import OutputInvalid
from pipelines.types import CommandSpec

#: The largest output of a stage, in bytes.
MAX_OUTPUT_BYTES = 1_000_000

#: Nesting beyond which no output is taken: every database and parser behind us agrees up to here.
MAX_DEPTH = 64


#: Whole numbers from here on, either way, may have come out of `orjson` as another kind of number.
_INEXACT = float(2**63)


def encode(pipe: Mapping[str, Any]) -> bytes:
    """The pipe as a child reads it on standard input.

    Only what `orjson` does not take, such as a whole number of more than 64 bits, is written by the
    standard library.
    """
    try:
        return orjson.dumps(pipe)
    except TypeError:
        return json.dumps(pipe, ensure_ascii=False, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Written:
    """What a stage's output says, its form checked: `files` are claims that nobody looked at yet.

    `said_files` is false where a command that returns files left them out.
    """

    data: Any
    files: tuple[Mapping[str, Any], ...] = ()
    said_files: bool = True


def written(spec: CommandSpec, output: bytes) -> Written | None:
    """A stage's output, read by what its command declares; None where the pipe passes through.

    OutputInvalid says why it does not pass.
    """
    if len(output) > MAX_OUTPUT_BYTES:
        raise OutputInvalid(f"the output is larger than {MAX_OUTPUT_BYTES} bytes")
    if not spec.files:
        value = _checked(spec, output)
        return None if spec.mode == "passthrough" else Written(value)
    return _with_files(spec, _parsed(output))


def _with_files(spec: CommandSpec, value: Any) -> Written:
    if not isinstance(value, dict) or "data" not in value:
        raise OutputInvalid('with files, the output is {"data": …, "files": […]}', field="data")
    unknown = sorted(value.keys() - {"data", "files"})
    if unknown:
        raise OutputInvalid(f"the output has a part {unknown[0][:80]!r} that no pipe has")
    if spec.output_schema is not None:
        schema.check_output(value["data"], spec.output_schema)
    files = value.get("files", [])
    if not isinstance(files, list) or not all(isinstance(one, dict) for one in files):
        raise OutputInvalid("files is a list of objects, each with its path", field="files")
    return Written(value["data"], tuple(files), "files" in value)


def _checked(spec: CommandSpec, output: bytes) -> Any:
    if spec.output_schema == "text":
        return _text(output)
    if spec.output_schema is None and spec.mode == "passthrough":
        _text(output)
        return None
    value = _parsed(output)
    if spec.output_schema is not None:
        schema.check_output(value, spec.output_schema)
    return value


def _text(output: bytes) -> str:
    try:
        text = output.decode("utf-8")
    except UnicodeDecodeError as error:
        raise OutputInvalid(f"the output is not UTF-8 ({error.reason})") from error
    if "\0" in text:
        raise OutputInvalid("the output holds a NUL character")
    return text


def _parsed(output: bytes) -> Any:
    """The output as JSON that can be kept: by `orjson`, which reads a megabyte in half the time.

    What it refuses, and numbers that it may have rounded, the standard library reads: that one says
    what is taken, and why something is not.
    """
    try:
        value = orjson.loads(output)
        check_storable(value, beyond=_INEXACT)
    except (ValueError, RecursionError):
        return _parsed_as_usual(output)
    return value


def _parsed_as_usual(output: bytes) -> Any:
    text = _text(output)
    try:
        value = json.loads(text, parse_constant=_no_constant)
        check_storable(value)
    except (ValueError, RecursionError) as error:
        raise OutputInvalid(f"the output is not JSON that can be kept: {error}") from error
    return value


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a JSON number")


def check_storable(value: Any, depth: int = 0, *, beyond: float = math.inf) -> None:
    """ValueError for a JSON value that some database behind us would refuse or change.

    So are fractions of that size and more, `beyond`, either way.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, dict):
        for name, inner in value.items():
            check_storable(name, depth + 1)
            check_storable(inner, depth + 1, beyond=beyond)
    elif isinstance(value, list):
        for inner in value:
            check_storable(inner, depth + 1, beyond=beyond)
    elif isinstance(value, float) and not abs(value) < beyond:
        raise ValueError("a number is beyond what JSON holds")


def _check_text(text: str) -> None:
    """ValueError for NUL or half a character. A megabyte costs no more than a look."""
    if "\0" in text:
        raise ValueError("a string holds NUL")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError("a string holds half a character") from error

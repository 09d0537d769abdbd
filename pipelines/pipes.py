"""The pipe: one JSON value with its files, handed from stage to stage (DES-031).

A `process` stage's output replaces `data`; a `passthrough` stage's is looked at and dropped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from pipelines import schema
from pipelines.exceptions import OutputInvalid
from pipelines.types import CommandSpec

#: The largest output of a stage, in bytes.
MAX_OUTPUT_BYTES = 1_000_000

#: Nesting beyond which no output is taken: every database and parser behind us agrees up to here.
MAX_DEPTH = 64


def encode(pipe: Mapping[str, Any]) -> bytes:
    """The pipe as a child reads it on standard input."""
    return json.dumps(pipe, ensure_ascii=False, separators=(",", ":")).encode()


def after(spec: CommandSpec, pipe: dict[str, Any], output: bytes) -> dict[str, Any]:
    """The pipe once a stage has written its output; OutputInvalid says why it does not pass.

    The very same pipe comes back where the command passes it through.
    """
    if len(output) > MAX_OUTPUT_BYTES:
        raise OutputInvalid(f"the output is larger than {MAX_OUTPUT_BYTES} bytes")
    value = _checked(spec, output)
    return pipe if spec.mode == "passthrough" else {"data": value, "files": pipe["files"]}


def _checked(spec: CommandSpec, output: bytes) -> Any:
    text = _text(output)
    if spec.output_schema == "text":
        return text
    if spec.output_schema is None and spec.mode == "passthrough":
        return None
    value = _parsed(text)
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


def _parsed(text: str) -> Any:
    try:
        value = json.loads(text, parse_constant=_no_constant)
        check_storable(value)
    except (ValueError, RecursionError) as error:
        raise OutputInvalid(f"the output is not JSON that can be kept: {error}") from error
    return value


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a JSON number")


def check_storable(value: Any, depth: int = 0) -> None:
    """ValueError for a JSON value that some database behind us would refuse or change."""
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    if isinstance(value, str):
        if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
            raise ValueError("a string holds NUL or half a character")
    elif isinstance(value, dict):
        for name, inner in value.items():
            check_storable(name, depth + 1)
            check_storable(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            check_storable(inner, depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is beyond what JSON holds")

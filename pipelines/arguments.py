"""Arguments are data: checked against what the command declares, then laid out as argv elements.

Nothing is converted (`"500"` is no integer), nothing unknown passes, and no value can become an
option: a named one travels as `--name=value`, a positional one must not begin with `-` unless the
command puts `--` before it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pipelines import options
from pipelines.exceptions import ArgumentInvalid
from pipelines.types import ArgumentSpec, ArgumentType, CommandSpec

#: The longest argument that a Linux process takes, in bytes.
MAX_ARGUMENT_BYTES = 128 * 1024


def check(spec: CommandSpec, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call, once every one is declared, of its type, and none is missing.

    ArgumentInvalid names the argument in `field`. What a command takes from the pipe is not a
    planner's to give, and is looked up when the stage runs.
    """
    for name in given:
        declared = spec.argument(name) if isinstance(name, str) else None
        if declared is None:
            raise ArgumentInvalid(f"{spec.name} has no argument {name!r}", field=str(name))
        if declared.from_pipe is not None:
            raise ArgumentInvalid(f"{name} is taken from the pipe, not from a plan", field=name)
    for argument in spec.arguments:
        if argument.name in given:
            check_value(spec, argument, given[argument.name])
        elif argument.required and argument.from_pipe is None:
            raise ArgumentInvalid(f"{argument.name} is required", field=argument.name)
    return dict(given)


def complete(
    spec: CommandSpec, given: Mapping[str, Any], pipe: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments with those that come from the pipe, all checked again for this run."""
    found = check(spec, given)
    for argument in spec.arguments:
        if argument.from_pipe is None:
            continue
        value = _at_pointer(pipe, argument.from_pipe)
        if value is not None:
            check_value(spec, argument, value)
            found[argument.name] = value
        elif argument.required:
            raise ArgumentInvalid(
                f"the pipe has nothing at {argument.from_pipe}", field=argument.name
            )
    return found


def check_value(spec: CommandSpec, argument: ArgumentSpec, value: Any) -> None:
    """ArgumentInvalid unless one value has its declared type and can travel safely."""
    if not _has_type(argument, value):
        allowed = f"one of {', '.join(argument.choices)}" if argument.choices else argument.type
        raise ArgumentInvalid(
            f"{argument.name} must be {allowed}, not {_shown(value)}", field=argument.name
        )
    if argument.max_length is not None and len(value) > argument.max_length:
        raise ArgumentInvalid(
            f"{argument.name} is longer than {argument.max_length} characters", field=argument.name
        )
    _check_text(spec, argument, as_text(value))


def as_text(value: Any) -> str:
    """A value as an argv element: `true`/`false`, numbers as JSON writes them, text as it is."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)


def layout(spec: CommandSpec, args: Mapping[str, Any]) -> list[str]:
    """The words after `fixed_args`: named, `--` where declared, positional in their order."""
    present = [argument for argument in spec.arguments if argument.name in args]
    named = [
        f"--{argument.name}={as_text(args[argument.name])}"
        for argument in present
        if argument.position is None
    ]
    placed = sorted(
        (argument.position, argument.name) for argument in present if argument.position is not None
    )
    separator = ["--"] if spec.end_of_options else []
    return [*named, *separator, *(as_text(args[name]) for _, name in placed)]


def layout_unfilled(spec: CommandSpec, args: Mapping[str, Any]) -> list[Any]:
    """The same words before the pipe is known: what it will supply stands as `{"from_pipe": …}`.

    No checked argument holds NUL, so that it can mark the places until the words are laid out.
    """
    supplied = {a.name: f"\0{a.from_pipe}" for a in spec.arguments if a.from_pipe is not None}
    return [
        {"from_pipe": word.partition("\0")[2]} if "\0" in word else word
        for word in layout(spec, {**args, **supplied})
    ]


def _has_type(argument: ArgumentSpec, value: Any) -> bool:
    match argument.type:
        case ArgumentType.STRING:
            return isinstance(value, str)
        case ArgumentType.ENUM:
            return isinstance(value, str) and value in argument.choices
        case ArgumentType.BOOLEAN:
            return isinstance(value, bool)
        case ArgumentType.INTEGER:
            return isinstance(value, int) and not isinstance(value, bool)
        case ArgumentType.NUMBER:
            return (
                isinstance(value, int | float)
                and not isinstance(value, bool)
                and math.isfinite(value)
            )


def _check_text(spec: CommandSpec, argument: ArgumentSpec, text: str) -> None:
    name = argument.name
    if "\0" in text:
        raise ArgumentInvalid(f"{name} holds a NUL character", field=name)
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise ArgumentInvalid(f"{name} holds half a character", field=name) from error
    if size + len(name) + 4 > MAX_ARGUMENT_BYTES:
        raise ArgumentInvalid(f"{name} is larger than {MAX_ARGUMENT_BYTES} bytes", field=name)
    if argument.position is not None and text.startswith("-") and not spec.end_of_options:
        raise ArgumentInvalid(
            f"{name} begins with '-' and {spec.name} does not declare end_of_options", field=name
        )
    options.check_value(spec, argument, text)


def _at_pointer(document: Any, pointer: str) -> Any:
    """What stands at a JSON Pointer (RFC 6901), or None."""
    found = document
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(key)
        elif isinstance(found, list) and key.isascii() and key.isdigit() and str(int(key)) == key:
            found = found[int(key)] if int(key) < len(found) else None
        else:
            return None
    return found


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text[:60]}"

"""From a signed document to what the program works with: defaults filled in, meanings checked.

The schema checks the form of each field; here stands what fields mean together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from django.conf import settings

from guards import secrets
from guards.exceptions import CountersignError
from pipelines import schema, write_sets
from pipelines.schema import Problem, field_path
from pipelines.types import ArgumentSpec, ArgumentType, Budget, CommandSpec, StepSpec

#: Seconds that a stage may take when its command says nothing.
DEFAULT_TIMEOUT = {"cli": 30.0, "claude": 1800.0}

#: Names that belong to the program: no document may take them (DES-029).
BUILT_IN = frozenset({"plan", "reply", "send"})

#: Seconds that the queue's own limit must lie above any stage's.
QUEUE_MARGIN = 60.0

_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600}


def read(document: Mapping[str, Any]) -> CommandSpec:
    """The command that a document describes; DocumentInvalid names each field and reason."""
    schema.check_document(document)
    spec = _build(document)
    found = sorted(_contradictions(spec))
    if found:
        raise schema.invalid(found)
    return spec


def problems(document: Mapping[str, Any]) -> list[Problem]:
    """Everything that `read` would refuse, each at its place; none for a command that is whole."""
    return schema.problems(document) or sorted(_contradictions(_build(document)))


def built_in(
    name: str,
    description: str,
    *,
    timeout: float,
    arguments: tuple[ArgumentSpec, ...] = (),
    prompt: str = "",
    budget: Budget | None = None,
) -> CommandSpec:
    """A command that the program brings itself: no document, no signature, the pipe passes through.

    `timeout` is in seconds.
    """
    return CommandSpec(
        name=name,
        runner="built-in",
        mode="passthrough",
        description=description,
        arguments=arguments,
        output_schema=None,
        files=False,
        write_set=(),
        timeout=timeout,
        environment={},
        serial=1,
        valid_until=None,
        end_of_options=False,
        repeatable=False,
        reply=True,
        project="",
        steps=(),
        document={},
        prompt=prompt,
        budget=budget,
    )


def _build(document: Mapping[str, Any]) -> CommandSpec:
    runner = document.get("runner", "claude")
    return CommandSpec(
        name=document["name"],
        runner=runner,
        mode=document.get("mode", "process"),
        description=document.get("description", ""),
        arguments=tuple(_argument(entry) for entry in document.get("args", [])),
        output_schema=document.get("output_schema"),
        files=document.get("files", False),
        write_set=tuple(document.get("write_set", [])),
        timeout=_seconds(document["timeout"]) if "timeout" in document else DEFAULT_TIMEOUT[runner],
        environment=dict(_variable(entry) for entry in document.get("env_vars", [])),
        serial=document["serial"],
        valid_until=_moment(document.get("valid_until")),
        end_of_options=document.get("end_of_options", False),
        repeatable=document.get("repeatable", False),
        reply=document.get("reply", True),
        project=document.get("project", ""),
        steps=_steps(document),
        document=document,
        prompt=document.get("prompt", ""),
        budget=_budget(document.get("budget")),
        mcp_servers=tuple(document.get("mcp_servers", ())),
        tools=tuple(document.get("tools", ())),
    )


def _budget(entry: Mapping[str, Any] | None) -> Budget | None:
    return None if entry is None else Budget(**entry)


def _argument(entry: Mapping[str, Any]) -> ArgumentSpec:
    return ArgumentSpec(
        name=entry["name"],
        type=ArgumentType(entry["type"]),
        required=entry.get("required", False),
        max_length=entry.get("max_length"),
        choices=tuple(entry.get("enum", ())),
        position=entry.get("position"),
        from_pipe=entry.get("from_pipe"),
    )


def _steps(document: Mapping[str, Any]) -> tuple[StepSpec, ...]:
    if "binary" in document:
        return (StepSpec(document["binary"], tuple(document.get("fixed_args", ()))),)
    return tuple(
        StepSpec(step["binary"], tuple(step.get("fixed_args", ())))
        for step in document.get("steps", ())
    )


def _seconds(text: str) -> float:
    return float(int(text[:-1]) * _UNIT_SECONDS[text[-1]])


def _variable(entry: str | Mapping[str, str]) -> tuple[str, str]:
    return (entry, entry) if isinstance(entry, str) else (entry["name"], entry["secret"])


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return datetime.max.replace(tzinfo=UTC)  # reported by _contradictions


def _contradictions(spec: CommandSpec) -> Iterator[Problem]:
    yield from _argument_contradictions(spec)
    yield from schema.check_output_schema(spec.output_schema)
    if spec.timeout > settings.QUEUE_TIMEOUT - QUEUE_MARGIN:
        limit = settings.QUEUE_TIMEOUT - QUEUE_MARGIN
        yield Problem(
            "timeout", f"is longer than {limit:.0f} seconds, what the queue leaves a stage"
        )
    if spec.valid_until is not None and spec.valid_until.year == datetime.max.year:
        yield Problem("valid_until", f"{spec.document['valid_until']!r} is no date and time")
    for index, path in enumerate(spec.write_set):
        try:
            write_sets.check_path(path)
        except CountersignError as error:
            yield Problem(field_path(["write_set", index]), error.detail)
    yield from _environment_contradictions(spec)


def _argument_contradictions(spec: CommandSpec) -> Iterator[Problem]:
    names: set[str] = set()
    positions: set[int] = set()
    for index, argument in enumerate(spec.arguments):
        if argument.name in names:
            yield Problem(field_path(["args", index, "name"]), f"{argument.name!r} stands twice")
        names.add(argument.name)
        if argument.position is None:
            continue
        if argument.position in positions:
            yield Problem(field_path(["args", index, "position"]), f"{argument.position} is taken")
        positions.add(argument.position)
    yield from _gaps(spec)


def _gaps(spec: CommandSpec) -> Iterator[Problem]:
    """A required positional after an optional one: left out, it would move what follows."""
    placed = [
        (a.position, index) for index, a in enumerate(spec.arguments) if a.position is not None
    ]
    optional = ""
    for _, index in sorted(placed):
        argument = spec.arguments[index]
        if argument.required and optional:
            yield Problem(
                field_path(["args", index, "required"]),
                f"a required position cannot follow the optional {optional!r}",
            )
        elif not argument.required:
            optional = optional or argument.name


def _environment_contradictions(spec: CommandSpec) -> Iterator[Problem]:
    if len(spec.environment) != len(spec.document.get("env_vars", [])):
        yield Problem("env_vars", "a variable stands twice")
    for index, reference in enumerate(spec.environment.values()):
        try:
            secrets.validate_reference(reference)
        except CountersignError as error:
            yield Problem(field_path(["env_vars", index]), error.detail)

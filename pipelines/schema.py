"""The published form of a command (`command.schema.json`), and how it and outputs are checked.

Nothing is fetched: references are local only. Patterns run on RE2, those over names too, and
`uniqueItems` looks at each item once, so that no output can make a check slow. Values are never
converted: `"500"` is not an integer, and neither is `10.0` in a command.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import re2
from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import SchemaError, ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

from pipelines.exceptions import DocumentInvalid, OutputInvalid

SCHEMA_FILE = Path(__file__).with_name("command.schema.json")

#: How many problems one refusal lists.
PROBLEMS_SHOWN = 5

_REFERENCES = ("$ref", "$dynamicRef")


class Problem(NamedTuple):
    """One thing that is wrong: where (`args[0].type`) and why."""

    field: str
    reason: str


def field_path(parts: Iterable[str | int]) -> str:
    """`args[0].type` for `["args", 0, "type"]`."""
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def published() -> dict[str, Any]:
    """The JSON Schema of a command, as published."""
    loaded: dict[str, Any] = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    return loaded


def problems(document: Any) -> list[Problem]:
    """Everything in a document that the published form does not allow, in order of place."""
    found = {_problem(_deepest(error)) for error in _document_validator().iter_errors(document)}
    return sorted(found)


def check_document(document: Any) -> None:
    """DocumentInvalid unless the document has the published form; names each field and reason."""
    found = problems(document)
    if found:
        raise invalid(found)


def invalid(found: list[Problem]) -> DocumentInvalid:
    """One refusal of several problems; its `field` is the first one's."""
    sentence = "; ".join(
        f"{field or 'document'}: {reason}" for field, reason in found[:PROBLEMS_SHOWN]
    )
    return DocumentInvalid(sentence, field=found[0].field or None)


def check_output_schema(schema: Any) -> list[Problem]:
    """What is wrong with an `output_schema`: its form, or a reference that leaves it."""
    if not isinstance(schema, Mapping):
        return []
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return [Problem(field_path(["output_schema", *error.absolute_path]), error.message)]
    except RecursionError:
        return [Problem("output_schema", "is nested too deeply")]
    path = ("output_schema",)
    return [*_foreign_references(schema, path), *_unusable_patterns(schema, path)]


def check_output(value: Any, schema: Mapping[str, Any]) -> None:
    """OutputInvalid unless the value matches the command's JSON Schema."""
    validator = _OutputValidator(schema, registry=Registry())
    try:
        error = next(validator.iter_errors(value), None)
    except (Unresolvable, RecursionError, re2.error) as failure:
        raise OutputInvalid(f"the output schema cannot be applied: {failure}") from failure
    if error is not None:
        place = field_path(error.absolute_path)
        raise OutputInvalid(f"{place or 'output'}: {error.message[:300]}", field=place or None)


def _foreign_references(node: Any, path: tuple[str | int, ...]) -> Iterator[Problem]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key in _REFERENCES and isinstance(value, str) and not value.startswith("#"):
                yield Problem(field_path((*path, key)), f"{value!r} is not a local reference")
            yield from _foreign_references(value, (*path, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _foreign_references(value, (*path, index))


def _unusable_patterns(node: Any, path: tuple[str | int, ...]) -> Iterator[Problem]:
    """Expressions that RE2 does not know, and the one keyword that would run them elsewhere."""
    if isinstance(node, Mapping):
        if "unevaluatedProperties" in node:
            yield Problem(field_path((*path, "unevaluatedProperties")), _NOT_LINEAR)
        named = node.get("patternProperties")
        expressions = [node.get("pattern"), *(named if isinstance(named, Mapping) else ())]
        for expression in expressions:
            if isinstance(expression, str) and not _is_linear(expression):
                yield Problem(field_path(path), f"{expression[:100]!r} is no RE2 expression")
        for key, value in node.items():
            yield from _unusable_patterns(value, (*path, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _unusable_patterns(value, (*path, index))


_NOT_LINEAR = "is not supported: say additionalProperties where the properties stand"


def _is_linear(expression: str) -> bool:
    try:
        _expression(expression)
    except re2.error:
        return False
    return True


@lru_cache(maxsize=256)
def _expression(expression: str) -> re2.Pattern:
    options = re2.Options()
    options.log_errors = False
    return re2.compile(expression, options)


def _linear_pattern(
    validator: Any, pattern: str, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not _expression(pattern).search(instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _linear_names(
    validator: Any, patterns: Mapping[str, Any], instance: Any, schema: Any
) -> Iterator[ValidationError]:
    """`patternProperties`."""
    if not validator.is_type(instance, "object"):
        return
    for pattern, wanted in patterns.items():
        for name, value in instance.items():
            if _expression(pattern).search(name):
                yield from validator.descend(value, wanted, path=name, schema_path=pattern)


def _linear_others(
    validator: Any, wanted: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    """`additionalProperties`: whatever neither `properties` nor `patternProperties` names."""
    if not validator.is_type(instance, "object"):
        return
    known = schema.get("properties", {})
    patterns = [_expression(pattern) for pattern in schema.get("patternProperties", {})]
    others = [
        name
        for name in instance
        if name not in known and not any(pattern.search(name) for pattern in patterns)
    ]
    if wanted is False and others:
        yield ValidationError(f"additional properties are not allowed: {others[:5]!r}")
    elif wanted is not False:
        for name in others:
            yield from validator.descend(instance[name], wanted, path=name)


def _linear_unique(
    validator: Any, wanted: bool, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    """`uniqueItems`."""
    if wanted and validator.is_type(instance, "array"):
        items = [_comparable(item) for item in instance]
        if len(set(items)) < len(items):
            yield ValidationError("has non-unique items")


def _comparable(value: Any) -> Hashable:
    """A JSON value as something that is equal where JSON Schema calls two values equal."""
    if isinstance(value, Mapping):
        return frozenset((name, _comparable(inner)) for name, inner in value.items())
    if isinstance(value, list):
        return tuple(_comparable(inner) for inner in value)
    return (bool, value) if isinstance(value, bool) else (None, value)


def _is_exact_integer(checker: Any, instance: Any) -> bool:
    return isinstance(instance, int) and not isinstance(instance, bool)


_extend: Any = validators.extend
_LINEAR = {
    "pattern": _linear_pattern,
    "patternProperties": _linear_names,
    "additionalProperties": _linear_others,
    "uniqueItems": _linear_unique,
}
_OutputValidator: Any = _extend(Draft202012Validator, _LINEAR)
_DocumentValidator: Any = _extend(
    _OutputValidator,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_exact_integer),
)


@cache
def _document_validator() -> Any:
    return _DocumentValidator(published(), registry=Registry())


def _deepest(error: ValidationError) -> ValidationError:
    """For a choice that failed, the branch that came furthest, which is what the author meant."""
    while error.context and error.validator in ("oneOf", "anyOf"):
        branches = [part for part in error.context if len(part.path)] or error.context
        branches = [part for part in branches if part.validator != "type"] or branches
        best = max(branches, key=lambda part: len(part.absolute_path))
        if best.validator == "required" and not error.absolute_path:
            break  # binary or steps: the choice itself is what to tell
        error = best
    return error


def _problem(error: ValidationError) -> Problem:
    path: list[str | int] = list(error.absolute_path)
    rule: Any = error.validator
    parts: Any = error.schema
    wanted: Any = error.validator_value
    instance: Any = error.instance
    if rule == "additionalProperties":
        extra = sorted(set(instance) - set(parts["properties"]))
        return Problem(field_path([*path, extra[0]]), "unknown key")
    if rule == "required":
        missing = [name for name in wanted if name not in instance]
        return Problem(field_path([*path, missing[0]]), "is required")
    if rule == "oneOf" and not path:
        return Problem("binary", "a cli command has either binary or steps")
    if rule == "not" and not wanted:
        return Problem(field_path(path), "does not belong here with the other fields as they are")
    if rule == "not":
        return Problem(field_path(path), f"{instance!r} is built in")
    return Problem(field_path(path), error.message[:300])

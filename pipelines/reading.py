"""Command files: one plain YAML or JSON mapping, read strictly, and signed in place.

YAML is read as JSON would be: `true` and `false` are the only booleans, numbers are decimal, dates
stay text, and duplicate names, anchors, tags and several documents are refused, so that what a
person reads is what was signed.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml

from pipelines import pipes
from pipelines.exceptions import DocumentUnreadable

#: The largest command file, in bytes.
MAX_FILE_BYTES = 256 * 1024

#: What counts as a command file.
SUFFIXES = frozenset({".yaml", ".yml", ".json"})


class _StrictLoader(yaml.SafeLoader):
    """YAML's mappings, lists and scalars of JSON, and nothing else."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise DocumentUnreadable("an alias (*name) is not allowed in a command file")
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if getattr(event, "anchor", None):
            raise DocumentUnreadable("an anchor (&name) is not allowed in a command file")
        if getattr(event, "tag", None):
            raise DocumentUnreadable(f"a tag ({event.tag}) is not allowed in a command file")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        names: set[str] = set()
        for key_node, _ in node.value:
            name = self.construct_object(key_node, deep=True)
            if not isinstance(name, str):
                raise DocumentUnreadable(f"the name {name!r} is not text", field=str(name))
            if name in names:
                raise DocumentUnreadable(f"the name {name!r} stands twice", field=name)
            names.add(name)
        return super().construct_mapping(node, deep=deep)


_RESOLVERS = {
    "tag:yaml.org,2002:bool": (r"^(?:true|false)$", "tf"),
    "tag:yaml.org,2002:null": (r"^(?:null|~|)$", ["n", "~", ""]),
    "tag:yaml.org,2002:int": (r"^-?(?:0|[1-9][0-9]*)$", "-0123456789"),
    "tag:yaml.org,2002:float": (
        r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)$",
        "-0123456789",
    ),
}


def _install_resolvers() -> None:
    import re

    for tag, (pattern, first) in _RESOLVERS.items():
        _StrictLoader.add_implicit_resolver(tag, re.compile(pattern), list(first))


_install_resolvers()


def read_file(path: Path) -> dict[str, Any]:
    """The mapping in a command file; DocumentUnreadable says what is wrong with anything else.

    OSError is the caller's: a file that cannot be read is not a verdict about its content.
    """
    with path.open("rb") as handle:
        content = handle.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise DocumentUnreadable(f"the file is larger than {MAX_FILE_BYTES} bytes")
    return read_text(content, json_form=path.suffix == ".json")


def read_text(content: bytes, *, json_form: bool = False) -> dict[str, Any]:
    """The mapping in these bytes."""
    try:
        text = content.decode("utf-8")
        loaded = _read_json(text) if json_form else _read_yaml(text)
    except UnicodeDecodeError as error:
        raise DocumentUnreadable(f"the file is not UTF-8 ({error.reason})") from error
    except (yaml.YAMLError, json.JSONDecodeError) as error:
        raise DocumentUnreadable(" ".join(str(error).split())) from error
    except (RecursionError, OverflowError) as error:
        raise DocumentUnreadable("the file is nested too deeply") from error
    except ValueError as error:  # a number of thousands of digits
        raise DocumentUnreadable(str(error)) from error
    if not isinstance(loaded, dict):
        raise DocumentUnreadable("the file is not one mapping of names to values")
    try:
        pipes.check_storable(loaded)
    except ValueError as error:
        raise DocumentUnreadable(str(error)) from error
    return loaded


def _read_yaml(text: str) -> Any:
    loader = _StrictLoader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def _read_json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise DocumentUnreadable(f"the name {name!r} stands twice", field=name)
        found[name] = value
    return found


def _no_constant(text: str) -> Any:
    raise DocumentUnreadable(f"{text} is not a JSON number")


def split_signature(document: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The document without `signature`, and the signature ("" when there is none)."""
    rest = {name: value for name, value in document.items() if name != "signature"}
    signature = document.get("signature", "")
    return rest, signature.strip() if isinstance(signature, str) else ""


def with_signature(content: str, signature: str, *, json_form: bool) -> str:
    """The file's text with this signature in place of any earlier one; comments stay."""
    if json_form:
        document, _ = split_signature(_read_json(content))
        return json.dumps({**document, "signature": signature.strip()}, indent=2) + "\n"
    kept = _without_signature(content.splitlines())
    block = [f"  {line}".rstrip() for line in signature.strip().splitlines()]
    return "\n".join([*kept, "signature: |", *block]) + "\n"


def _without_signature(lines: list[str]) -> list[str]:
    kept: list[str] = []
    inside = False
    for line in lines:
        if line.startswith("signature:"):
            inside = True
        elif inside and (not line.strip() or line.startswith((" ", "\t"))):
            continue
        else:
            inside = False
            kept.append(line)
    while kept and not kept[-1].strip():
        kept.pop()
    return kept

"""YAML as people write it and as `reading` takes it back: the very same document comes out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

from guards.exceptions import CountersignError
from pipelines import reading

#: Text that no YAML reader takes for anything but itself, without quotes.
_PLAIN = re.compile(r"\A[A-Za-z_/][A-Za-z0-9_./@+-]*(?: [A-Za-z0-9_./@+-]+)*\Z")
_WORDS = frozenset(
    {"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"}
)  # of older readers


class _Dumper(yaml.SafeDumper):
    """Block style, and quotes wherever a word could be read as something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> Any:
        return super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    if "\n" in text:
        style = "|"
    else:
        style = "" if _PLAIN.match(text) and text.lower() not in _WORDS else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style or None)


_Dumper.add_representer(str, _text)


def as_yaml(document: Mapping[str, Any]) -> str:
    """The document as YAML; as JSON, which is YAML too, where YAML would not give it back."""
    text: str = yaml.dump(
        dict(document), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000
    )
    try:
        if reading.read_text(text.encode()) == document:
            return text
    except CountersignError:
        pass
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"

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


def signed_yaml(document: Mapping[str, Any], signature: str) -> str:
    """A command file as `load_commands` takes it: the document, and the signature over it."""
    if not signature.strip():
        return as_yaml(document)
    return as_yaml({**document, "signature": f"{signature.strip()}\n"})


#: What a new command starts from. It passes every check once the comments have been followed.
_HEAD = """\
# {name}: say here, for whoever reads it later, what this command is for.
# Sign it with `manage.py command sign`, or sign `manage.py command canonical` elsewhere.
schema: command/1
name: {name}
serial: {serial}                  # goes up with every change
description: Say in one sentence what it does.
runner: {runner}
mode: process              # the output replaces the pipe; passthrough keeps the pipe
"""

_ARGS = """\
args:                      # what a planner may give; anything else refuses the plan
  - name: topic
    type: string           # string, integer, number, boolean, enum
    max_length: 200
    required: true
{how}"""

_CLI = (
    """\
binary: echo               # a name or an absolute path inside ALLOWED_BINARIES
fixed_args: [hello]        # the words that always come first
# steps:                   # or, instead of binary, programs joined by pipes
#   - {binary: jq, fixed_args: [-r, .data.text]}
#   - {binary: wc, fixed_args: [-w]}
# end_of_options: true     # -- before positional words, where the program knows it (echo does not)
"""
    + _ARGS.format(how="    position: 1            # without it: --topic=VALUE\n")
    + """\
output_schema: text        # or a JSON Schema; omitted: any JSON
timeout: 30s
# env_vars: [NAME]         # filled from the secret of that name
# valid_until: 2030-01-01T00:00:00Z
"""
)

_CLAUDE = (
    """\
prompt: |
  Say what the worker is to do. It reads its arguments and the pipe from its contract,
  and hands in one result. No text of the mail ever stands here.
budget:
  rounds: 1                # how often it may work on it
  max_turns: 50            # of one round
  max_usd: 5               # of all rounds together
"""
    + _ARGS.format(how="")
    + """\
output_schema:             # what it must hand in; text is another choice
  type: object
  required: [summary]
  properties:
    summary: {type: string}
timeout: 30m
# project: example         # it works in that project's root, and may change what is listed:
# write_set: [docs]
# tools: [Read]            # beyond our own; these need the sandbox
"""
)


def command_template(name: str, *, runner: str = "cli", serial: int = 1) -> str:
    """A commented command to start from, whole as it stands."""
    head = _HEAD.format(name=name, serial=serial, runner=runner)
    return head + (_CLI if runner == "cli" else _CLAUDE)

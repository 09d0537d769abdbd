"""docs/field-faults.md: which faults of the field are answered by which tests.

A test carries `@pytest.mark.fault("imap-01", "W13")`. `python -m tests.faults` writes the page.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator

from tests.documents import marks
from tests.documents.paths import DOCS

_HEAD = """# Faults of the field, and the tests that answer them

Each fault was met by somebody running mail, queues, signatures or agents. The names are those of
the tests' markers (`@pytest.mark.fault`): an area with a number, `sister-N` for faults of earlier
programs of this kind, `WN` for weaknesses by design. This page is generated from the markers by
`make docs`.

| fault | answered by |
|---|---|
"""


def page() -> str:
    """The page as it should be."""
    answers: defaultdict[str, set[str]] = defaultdict(set)
    for where, tree in marks.marked("fault"):
        for fault, test in _marked(where, tree):
            answers[fault].add(test)
    rows = [
        f"| {fault} | {'<br>'.join(sorted(answers[fault]))} |"
        for fault in sorted(answers, key=_order)
    ]
    return _HEAD + "\n".join(rows) + "\n"


def _order(fault: str) -> tuple[object, ...]:
    return tuple(int(part) if part.isdigit() else part for part in re.split(r"(\d+)", fault))


def _marked(where: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Each fault with the test that has it (the module, for a marker anywhere else in it)."""
    in_decorators: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for call in (c for one in node.decorator_list for c in marks.calls(one, "fault")):
                in_decorators.add(id(call))
                yield from ((fault, f"`{where}::{node.name}`") for fault in _ids(call))
    for call in marks.calls(tree, "fault"):
        if id(call) not in in_decorators:
            yield from ((fault, f"`{where}`") for fault in _ids(call))


def _ids(call: ast.Call) -> Iterator[str]:
    for argument in call.args:
        if isinstance(argument, ast.Constant):
            yield str(argument.value)


if __name__ == "__main__":
    (DOCS / "field-faults.md").write_text(page(), encoding="utf-8")
    sys.stdout.write("wrote docs/field-faults.md\n")

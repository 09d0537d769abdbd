"""docs/field-faults.md: which faults of the field are answered by which tests.

A test carries `@pytest.mark.fault("imap-01", "W13")`. `python -m tests.faults` writes the page.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.documents.paths import DOCS, ROOT

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
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for fault, test in _marked(path):
            answers[fault].add(test)
    rows = [
        f"| {fault} | {'<br>'.join(sorted(answers[fault]))} |"
        for fault in sorted(answers, key=_order)
    ]
    return _HEAD + "\n".join(rows) + "\n"


def _order(fault: str) -> tuple[object, ...]:
    return tuple(int(part) if part.isdigit() else part for part in re.split(r"(\d+)", fault))


def _marked(path: Path) -> Iterator[tuple[str, str]]:
    """Each fault with the test that has it (the module, for a marker anywhere else in it)."""
    where = path.relative_to(ROOT).as_posix()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    in_decorators: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for call in _fault_calls(node.decorator_list):
                in_decorators.add(id(call))
                yield from ((fault, f"`{where}::{node.name}`") for fault in _ids(call))
    for call in _fault_calls([tree]):
        if id(call) not in in_decorators:
            yield from ((fault, f"`{where}`") for fault in _ids(call))


def _fault_calls(nodes: list[ast.expr] | list[ast.Module]) -> Iterator[ast.Call]:
    for root in nodes:
        for node in ast.walk(root):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.fault"):
                yield node


def _ids(call: ast.Call) -> Iterator[str]:
    for argument in call.args:
        if isinstance(argument, ast.Constant):
            yield str(argument.value)


if __name__ == "__main__":
    (DOCS / "field-faults.md").write_text(page(), encoding="utf-8")
    sys.stdout.write("wrote docs/field-faults.md\n")

"""The program's modules as text and syntax: each is read and parsed once for all tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
APPS = ("guards", "approvals", "teams", "mail", "pipelines", "config")


class Source:
    """One module; `name` is its path from the root."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def calls(self) -> list[tuple[str, ast.Call]]:
        """Each call with what is called, as it is written."""
        found = (node for node in self.nodes if isinstance(node, ast.Call))
        return [(ast.unparse(node.func), node) for node in found]

    @cached_property
    def imports(self) -> set[str]:
        """What is imported, by its full name; not what is relative."""
        return imported(self.nodes)


def imported(nodes: list[ast.AST]) -> set[str]:
    """The full names that these nodes import."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@cache
def every() -> tuple[Source, ...]:
    """All modules of all apps."""
    return tuple(
        Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
        for app in APPS
        for path in sorted((ROOT / app).rglob("*.py"))
    )


def modules(*excepted: str) -> Iterator[Source]:
    """All but migrations and what begins with one of these names."""
    for source in every():
        if "/migrations/" not in source.name and not source.name.startswith(excepted):
            yield source

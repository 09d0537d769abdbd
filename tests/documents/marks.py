"""Test modules as syntax, each parsed once for all pages."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.documents.paths import ROOT


@cache
def marked(mark: str) -> tuple[tuple[str, ast.Module], ...]:
    """Path from the root and syntax of each test module that has `pytest.mark.<mark>` somewhere."""
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    return tuple(
        (path.relative_to(ROOT).as_posix(), _tree(path))
        for path in paths
        if f"mark.{mark}" in path.read_text(encoding="utf-8")
    )


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def calls(root: ast.AST, mark: str) -> tuple[ast.Call, ...]:
    """The calls of that mark inside."""
    return tuple(
        node
        for node in ast.walk(root)
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", "") == mark
        and ast.unparse(node.func).endswith(f"mark.{mark}")
    )

"""docs/settings.md: every setting with its default and the comment above it."""

from __future__ import annotations

import ast
import re

from tests.documents.paths import ROOT

_HEAD = """# Settings

Read from the environment, then from `.env`. This page is generated from `config/settings.py` by
`make docs`; each text is the comment above the setting.

| name | type | default | meaning |
|---|---|---|---|
"""


def page() -> str:
    """The page as it should be."""
    source = (ROOT / "config" / "settings.py").read_text(encoding="utf-8")
    lines = source.splitlines()
    rows = []
    for statement in ast.parse(source).body:
        comment = _comment_above(lines, statement.lineno)
        for call in _readings(statement):
            rows.append(_row(call, comment or _comment_above(lines, call.lineno)))
    return _HEAD + "\n".join(rows) + "\n"


def _readings(statement: ast.stmt) -> list[ast.Call]:
    """Calls such as `env.str("NAME", default=…)`."""
    return [
        node
        for node in ast.walk(statement)
        if isinstance(node, ast.Call)
        and re.fullmatch(r"env\.(str|bool|int|list|float)", ast.unparse(node.func))
        and node.args
    ]


def _comment_above(lines: list[str], number: int) -> str:
    found: list[str] = []
    for line in reversed(lines[: number - 1]):
        text = line.strip()
        if not text.startswith("#") or text.startswith("# ---"):
            break
        found.append(text.lstrip("# "))
    return " ".join(reversed(found))


def _row(call: ast.Call, comment: str) -> str:
    name = ast.literal_eval(call.args[0])
    kind = ast.unparse(call.func).removeprefix("env.")
    given = next((k.value for k in call.keywords if k.arg == "default"), None)
    default = _default(given) if given is not None else "must be given"
    return f"| `{name}` | {kind} | {default} | {comment.replace('|', '/')} |"


def _default(node: ast.expr) -> str:
    text = ast.unparse(node)
    if text in ("''", '""', "[]"):
        return "empty"
    text = re.sub(r"^str\((.*)\)$", r"\1", text)
    text = re.sub(r"^f(['\"])(.*)\1$", r"\2", text)
    return f"`{text}`".replace("|", "/")

"""What review would miss: processes, shells, the network and statuses in the wrong places."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
APPS = ("guards", "approvals", "teams", "mail", "pipelines", "config")

#: Who may start processes: the one door, GnuPG's own invocation, and the supervisor of `up`.
STARTS_PROCESSES = ("guards/process/", "guards/openpgp/", "config/supervision.py")
#: Who may become another program.
EXECUTES = (
    *STARTS_PROCESSES,
    "config/tether.py",
    "config/management/commands/up.py",
    "pipelines/runners/claude/inside.py",
)
#: Who may speak to the network: gateways, the demo's own mail, and the queue's brokers.
SPEAKS = (
    "mail/gateways/",
    "pipelines/gateways/",
    "teams/gateways/",
    "config/embedded_mail.py",
    "config/demo/post.py",
    "config/doctor/workers.py",
    "config/management/commands/up.py",
    "guards/queue/wakeup.py",
    "guards/process/",
    "pipelines/runners/claude/egress.py",
    "pipelines/runners/claude/reception.py",
)

NETWORK = {
    *("socket", "ssl", "smtplib", "imaplib", "poplib", "ftplib", "telnetlib", "asyncore"),
    *("urllib.request", "http.client", "requests", "httpx", "aiohttp", "imap_tools"),
}
_SHELLS = re.compile(r"\bos\.(system|popen|spawn\w*|fork\w*)\b|shell\s*=\s*True|\bpty\.spawn\b")


def _modules(*excepted: str) -> Iterator[tuple[str, str]]:
    for app in APPS:
        for path in sorted((ROOT / app).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if "/migrations/" not in name and not name.startswith(excepted):
                yield name, path.read_text(encoding="utf-8")


@cache
def _tree(text: str) -> ast.Module:
    """Each module is parsed once for all tests."""
    return ast.parse(text)


def _imports(text: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(_tree(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def _calls(text: str) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(_tree(text)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


@pytest.mark.invariant(14)
def test_only_one_room_starts_processes():
    found = [name for name, text in _modules(*STARTS_PROCESSES) if "subprocess" in _imports(text)]
    assert found == []


@pytest.mark.invariant(14)
def test_nobody_uses_a_shell():
    found = [
        name
        for name, text in _modules()
        for called, node in _calls(text)
        if _SHELLS.search(ast.unparse(node)) and not name.startswith("guards/process/")
    ]
    assert found == []


def test_nobody_else_becomes_another_program():
    found = [
        name
        for name, text in _modules(*EXECUTES)
        for called, _ in _calls(text)
        if called.startswith("os.exec")
    ]
    assert found == []


def test_only_gateways_speak_to_the_network():
    found = [(name, used) for name, text in _modules(*SPEAKS) for used in _imports(text) & NETWORK]
    assert found == []


def test_no_view_saves_a_status():
    fronts = re.compile(r"/(admin|api|views|consumers|tasks|receivers)(/|\.py)|^config/")
    found = [
        (name, ast.unparse(node))
        for name, text in _modules()
        if fronts.search(name)
        for called, node in _calls(text)
        if called.endswith((".save", ".update"))
        and re.search(r"\b(status|state|phase)\b", ast.unparse(node))
    ]
    assert found == []


@pytest.mark.parametrize("word", ["TODO", "FIXME", "XXX"])
def test_nothing_is_left_to_do(word: str):
    assert [name for name, text in _modules() if re.search(rf"\b{word}\b", text)] == []


def test_no_module_is_too_long_to_scan():
    long = {name: n for name, text in _modules() if (n := text.count("\n")) > 400}
    assert long == {}


def test_no_function_is_too_long_to_hold_in_the_eye():
    long = [
        (name, node.name, length)
        for name, text in _modules()
        for node in ast.walk(_tree(text))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (length := (node.end_lineno or 0) - node.lineno + 1) > 60
    ]
    assert long == []


def test_every_module_says_what_it_is_for():
    silent = [
        name for name, text in _modules() if text.strip() and ast.get_docstring(_tree(text)) is None
    ]
    assert silent == []

"""What review would miss: processes, shells, the network and statuses in the wrong places."""

from __future__ import annotations

import ast
import re

import pytest

from tests.architecture.sources import modules

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
    "pipelines/runners/claude/broker/upstream.py",
    "pipelines/runners/claude/egress.py",
    "pipelines/runners/claude/reception.py",
)

NETWORK = {
    *("socket", "ssl", "smtplib", "imaplib", "poplib", "ftplib", "telnetlib", "asyncore"),
    *("urllib.request", "http.client", "requests", "httpx", "aiohttp", "imap_tools"),
}
_SHELLS = re.compile(r"os\.(system|popen|spawn\w*|fork\w*)|pty\.spawn")


@pytest.mark.invariant(14)
def test_only_one_room_starts_processes():
    found = [one.name for one in modules(*STARTS_PROCESSES) if "subprocess" in one.imports]
    assert found == []


@pytest.mark.invariant(14)
def test_nobody_uses_a_shell():
    found = [
        one.name for one in modules("guards/process/") for node in one.nodes if _is_shell(node)
    ]
    assert found == []


@pytest.mark.parametrize("source", ["run(x, shell = True)", "os.system(x)", "partial(os.popen, x)"])
def test_a_shell_would_be_seen(source: str):
    assert any(_is_shell(node) for node in ast.walk(ast.parse(source)))


def _is_shell(node: ast.AST) -> bool:
    if isinstance(node, ast.keyword):
        return node.arg == "shell" and ast.unparse(node.value) == "True"
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
        return False
    return bool(_SHELLS.fullmatch(f"{node.value.id}.{node.attr}"))


def test_nobody_else_becomes_another_program():
    found = [
        one.name
        for one in modules(*EXECUTES)
        for called, _ in one.calls
        if called.startswith("os.exec")
    ]
    assert found == []


def test_only_gateways_speak_to_the_network():
    found = [(one.name, used) for one in modules(*SPEAKS) for used in one.imports & NETWORK]
    assert found == []


def test_no_view_saves_a_status():
    fronts = re.compile(r"/(admin|api|views|consumers|tasks|receivers)(/|\.py)|^config/")
    found = [
        (one.name, ast.unparse(node))
        for one in modules()
        if fronts.search(one.name)
        for called, node in one.calls
        if called.endswith((".save", ".update"))
        and re.search(r"\b(status|state|phase)\b", ast.unparse(node))
    ]
    assert found == []


@pytest.mark.parametrize("word", ["TODO", "FIXME", "XXX"])
def test_nothing_is_left_to_do(word: str):
    assert [one.name for one in modules() if re.search(rf"\b{word}\b", one.text)] == []


def test_no_module_is_too_long_to_scan():
    long = {one.name: n for one in modules() if (n := one.text.count("\n")) > 400}
    assert long == {}


def test_no_function_is_too_long_to_hold_in_the_eye():
    long = [
        (one.name, node.name, length)
        for one in modules()
        for node in one.nodes
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (length := (node.end_lineno or 0) - node.lineno + 1) > 60
    ]
    assert long == []


def test_every_module_says_what_it_is_for():
    silent = [
        one.name for one in modules() if one.text.strip() and ast.get_docstring(one.tree) is None
    ]
    assert silent == []

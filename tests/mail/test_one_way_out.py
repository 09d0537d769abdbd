"""Outgoing mail of any kind leaves through one effect: nothing else reaches what sends."""

from __future__ import annotations

import ast

import pytest

from tests.architecture.sources import every, imported

#: Who may say what: the attribute that is used, and the only modules that use it.
DOORS = {
    # The way out of an account: the act's one contact, and a trial login without a message.
    "submission": {"mail/adapters.py", "mail/services/accounts.py"},
    # The act of a kind: the engine alone, after the mark.
    "contact": {"approvals/services/effects.py"},
}
#: Libraries that send, and the only modules that import them. The demo's strangers post their own.
LIBRARIES = {
    "smtplib": {"mail/gateways/smtp.py", "config/demo/post.py"},
    "aiosmtplib": set(),
    "django.core.mail": set(),
}


def _nodes(source: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(source)))


def _used(nodes: list[ast.AST], name: str) -> bool:
    """Whether a module reads a transport's way out, or calls a kind's contact."""
    if name == "contact":
        return any(_calls(node, name) for node in nodes)
    read = (n for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load))
    return any(node.attr == name for node in read)


def _calls(node: ast.AST, name: str) -> bool:
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return called and node.func.attr == name


@pytest.mark.invariant(19)
@pytest.mark.parametrize("door", DOORS)
def test_only_the_engine_and_its_kind_take_the_door(door: str) -> None:
    # What uses it says its name: only those are parsed.
    assert {one.name for one in every() if door in one.text and _used(one.nodes, door)} == DOORS[
        door
    ]


@pytest.mark.invariant(19)
@pytest.mark.parametrize("library", LIBRARIES)
def test_only_the_gateway_imports_what_can_send(library: str) -> None:
    saying = [one for one in every() if all(part in one.text for part in library.split("."))]
    assert {one.name for one in saying if library in one.imports} == LIBRARIES[library]


@pytest.mark.parametrize(
    ("source", "door"),
    [
        ("transport(x).submission.send(e, payload=p)", "submission"),
        ("way = transport(x).submission\nway.send(e)", "submission"),
        ("registry.act(name).contact(act)", "contact"),
    ],
)
def test_a_second_way_out_would_be_seen(source: str, door: str) -> None:
    assert _used(_nodes(source), door)


def test_a_second_library_would_be_seen() -> None:
    for source in ("import smtplib", "from smtplib import SMTP"):
        assert "smtplib" in imported(_nodes(source))
    assert "django.core.mail" in imported(_nodes("from django.core import mail"))

"""Adding and changing a planning rule in the console."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from pipelines.models import Command, Rule
from tests.pipelines.factories import cli

pytestmark = pytest.mark.one_database

FORM = {
    "name": "greet",
    "position": 100,
    "is_active": "on",
    "identity": "",
    "sender": "",
    "kind": "regex",
    "match": r"greet (?P<whom>\w+)",
    "calls": '[{"command": "greet", "args": {"whom": {"group": "whom"}}}]',
}


def add(console: Client, **changes: object):
    return console.post(reverse("admin:pipelines_rule_add"), FORM | changes)


def change(console: Client, **changes: object):
    fields = {name: value for name, value in (FORM | changes).items() if name != "name"}
    address = reverse("admin:pipelines_rule_change", args=[Rule.objects.get().pk])
    return console.post(address, fields)


def test_a_saved_rule_is_changed_and_switched_off(console: Client):
    assert add(console).status_code == 302
    assert change(console, position=5, is_active="").status_code == 302
    rule = Rule.objects.get()
    assert (rule.name, rule.position, rule.is_active) == ("greet", 5, False)


@pytest.mark.parametrize("form", [add, change])
def test_what_is_wrong_with_a_rule_stands_at_its_field(console: Client, form):
    if form is change:
        add(console)
    answer = form(console, match="greet (?=x)", calls='[{"command": "greet"}]')
    errors = answer.context["adminform"].form.errors
    assert errors["match"] == ["is no RE2 expression: invalid perl operator: (?="]


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ('[{"command": "nosuch"}]', "there is no command &#x27;nosuch&#x27;"),
        ('[{"command": "greet", "args": {"who": 1}}]', "greet has no argument &#x27;who&#x27;"),
        ('[{"command": "greet"}]', "greet needs the argument &#x27;whom&#x27;"),
    ],
)
def test_a_rule_that_starts_nothing_yet_is_saved_with_a_warning(
    console: Client, calls: str, said: str
):
    document = cli("greet", args=[{"name": "whom", "type": "string", "required": True}])
    Command.objects.create(name="greet", document=document)
    page = console.post(reverse("admin:pipelines_rule_add"), FORM | {"calls": calls}, follow=True)
    assert said in page.content.decode()
    assert Rule.objects.exists()


def test_a_rule_whose_commands_are_there_is_saved_without_a_warning(console: Client):
    document = cli("greet", args=[{"name": "whom", "type": "string", "required": True}])
    Command.objects.create(name="greet", document=document)
    page = console.post(reverse("admin:pipelines_rule_add"), FORM, follow=True)
    assert "starts nothing" not in page.content.decode()

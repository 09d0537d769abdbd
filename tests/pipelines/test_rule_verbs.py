"""`load_rules` and `rule list|show|try|remove|export`: planning without a browser."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from pipelines import selectors
from pipelines.models import Rule, RuleHit
from pipelines.services import intake, rules
from tests.guards.factories import IdentityFactory
from tests.pipelines.factories import OPERATOR

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]

FILE = """\
rules:
  # What the agent says first.
  - name: greet
    identity: bot
    sender: "*@example.org"
    kind: regex
    match: '(?i)\\bgreet (?P<whom>\\w+)'
    calls:
      - command: greet
        args: {whom: {group: whom}, times: 3}
  - name: sum
    active: false
    match: sum up
    calls: [{command: sum}]
"""


def call(*words: object) -> tuple[int, list[dict], str]:
    """Exit code, JSON answers, and what was refused."""
    out = StringIO()
    try:
        call_command(*map(str, words), "--json", stdout=out)
    except CommandError as error:
        return error.returncode, [], str(error)
    return 0, [json.loads(line) for line in out.getvalue().splitlines()], ""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    IdentityFactory(handle="bot")
    path = tmp_path / "rules.yaml"
    path.write_text(FILE)
    return path


def test_a_file_is_loaded_in_its_order_and_says_what_is_missing(file):
    code, told, _ = call("load_rules", file)
    assert (code, [answer["name"] for answer in told]) == (0, ["greet", "sum"])
    assert told[0]["unmet"] == ["there is no command 'greet'"]
    greet, total = Rule.objects.all()
    assert (greet.position, greet.identity.handle, greet.sender) == (10, "bot", "*@example.org")
    assert greet.calls[0]["args"] == {"whom": {"group": "whom"}, "times": 3}
    assert (total.position, total.is_active, total.kind) == (20, False, "words")


def test_what_is_exported_loads_to_the_same_rules(file, tmp_path):
    call("load_rules", file)
    before = list(Rule.objects.values("name", "position", "match", "calls", "is_active", "kind"))
    exported = tmp_path / "exported.yaml"
    assert call("rule", "export", "--output", exported)[0] == 0
    Rule.objects.all().delete()
    assert call("load_rules", exported)[0] == 0
    assert (
        list(Rule.objects.values("name", "position", "match", "calls", "is_active", "kind"))
        == before
    )


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("kind: regex", "kind: glob", "rules[0].kind"),
        ("{group: whom}", "{group: who}", "rules[0].calls[0].args.whom"),
        ("identity: bot", "identity: nobody", "rules[0].identity"),
        ("name: sum", "name: greet", "rules[1].name"),
        ("match: sum up", "matches: sum up", "rules[1].matches"),
        ("active: false", "active: 0", "rules[1].active"),
        ("rules:", "rule:", "rules"),
    ],
)
def test_one_fault_refuses_the_whole_file_and_names_its_place(file, old, new, field):
    file.write_text(FILE.replace(old, new))
    code, _, said = call("load_rules", file)
    assert code == 1
    assert said.endswith(f"({field})"), said
    assert Rule.objects.count() == 0


def test_only_replace_removes_what_the_file_does_not_name(file):
    rules.save_rule(name="old", match="old", calls=[{"command": "old"}], by=OPERATOR)
    call("load_rules", file)
    assert Rule.objects.filter(name="old").exists()
    call("load_rules", file, "--replace")
    assert set(Rule.objects.values_list("name", flat=True)) == {"greet", "sum"}


def test_rules_are_listed_shown_and_removed(file):
    call("load_rules", file)
    _, listed, _ = call("rule", "list")
    assert [(rule["name"], rule["active"]) for rule in listed] == [("greet", True), ("sum", False)]
    rules.count_hit(name="greet")
    _, (shown,), _ = call("rule", "show", "greet")
    assert (shown["hits"], list(shown["hits_by_day"].values())) == (1, [1])
    assert call("rule", "remove", "greet")[0] == 0
    assert call("rule", "show", "greet")[0] == 1
    assert call("load_rules", file.parent / "absent.yaml")[0] == 2


def test_a_message_too_old_to_start_anything_can_be_tried(desk, owner, tmp_path):
    owner.install(args=[{"name": "whom", "type": "string"}])
    rules.save_rule(
        name="greet",
        match=r"greet (?P<whom>\w+)",
        kind="regex",
        calls=[{"command": "greet", "args": {"whom": {"group": "whom"}}}],
        by=OPERATOR,
    )
    message = desk.message("greet Bob", execution="refused")
    late = (timezone.now() + timedelta(days=9)).isoformat()
    _, (judged,), _ = call("pipeline", "dry-run", message.pk, "--now", late)
    assert judged["refused"]["rule"] == "signature-too-old"
    _, (tried,), _ = call("rule", "try", message.pk, "--now", late)
    assert (tried["planner"], tried["refused"]) == ("rule:greet", None)
    assert tried["calls"][0]["args"] == {"whom": "Bob"}


def test_each_planned_message_is_a_hit_of_its_day(desk, owner):
    owner.install()
    rule = rules.save_rule(name="greet", match="greet", calls=[{"command": "greet"}], by=OPERATOR)
    yesterday = timezone.now().date() - timedelta(days=1)
    RuleHit.objects.create(rule=rule, day=yesterday, hits=4)
    for _ in range(2):
        intake.take_in(message_id=desk.message("greet").pk)
    intake.take_in(message_id=desk.message("good morning").pk)
    assert [hits for _, hits in selectors.hits_by_day(rule, days=3)] == [0, 4, 2]
    rule.refresh_from_db()
    assert rule.hits == 2

"""Rules read the executable text, and whatever is planned is checked before it counts."""

from __future__ import annotations

import time

import pytest

from guards.exceptions import NotFound
from pipelines import registry
from pipelines.exceptions import RuleInvalid
from pipelines.models import Command, Rule
from pipelines.services import dry_run, planning, rules
from pipelines.types import AcceptedPlan, CommandCall, Plan, PlanningRequest, PlanRefused
from teams.models import Event
from tests.guards.factories import IdentityFactory
from tests.pipelines.factories import OPERATOR

pytestmark = pytest.mark.django_db

GREET = [{"command": "greet"}]


def save(name: str = "rule", match: str = "please", calls=GREET, **fields) -> Rule:
    return rules.save_rule(name=name, match=match, calls=calls, by=OPERATOR, **fields)


def plan(text: str, sender: str = "alice@example.org", identity_id: int | None = None):
    return planning.plan(PlanningRequest(text, sender, identity_id))


@pytest.mark.one_database
def test_plain_words_must_all_occur_in_any_order_and_case(owner):
    owner.install()
    save(match="deploy Production")

    assert isinstance(plan("Production, please DEPLOY."), AcceptedPlan)
    assert isinstance(plan("deploy staging"), PlanRefused)
    assert isinstance(plan("redeploy production"), PlanRefused)


@pytest.mark.one_database
def test_a_named_group_becomes_a_typed_argument(owner):
    owner.install(
        args=[
            {"name": "target", "type": "enum", "enum": ["web", "db"]},
            {"name": "times", "type": "integer"},
            {"name": "note", "type": "string"},
        ]
    )
    save(
        match=r"(?i)deploy (?P<target>\w+) (?P<times>\d+) times(?: note (?P<note>.+))?",
        kind="regex",
        calls=[
            {
                "command": "greet",
                "args": {
                    "target": {"group": "target"},
                    "times": {"group": "times", "type": "integer"},
                    "note": {"group": "note"},
                },
            }
        ],
    )

    accepted = plan("Deploy web 3 times")
    assert isinstance(accepted, AcceptedPlan)
    assert dict(accepted.stages[0].args) == {"target": "web", "times": 3}
    for text in ("deploy mail 3 times", "deploy web 03 times"):
        refused = plan(text)
        assert isinstance(refused, PlanRefused), text
        assert refused.rule == "invalid-argument"


@pytest.mark.one_database
@pytest.mark.invariant(14)
def test_an_argument_from_mail_cannot_become_an_option(owner):
    owner.install(args=[{"name": "file", "type": "string", "position": 1}])
    save(
        match=r"show (?P<f>\S+)", kind="regex",
        calls=[{"command": "greet", "args": {"file": {"group": "f"}}}],
    )  # fmt: skip

    refused = plan("show --output=/etc/x")
    assert isinstance(refused, PlanRefused)
    assert (refused.rule, "end_of_options" in refused.detail) == ("invalid-argument", True)


def test_the_first_rule_in_the_operators_order_wins(owner):
    owner.install("first")
    owner.install("second")
    save("late", position=2, calls=[{"command": "second"}])
    save("early", position=1, calls=[{"command": "first"}])
    save("off", position=0, calls=[{"command": "second"}], is_active=False)

    accepted = plan("please")
    assert isinstance(accepted, AcceptedPlan)
    assert accepted.planner == "rule:early"


@pytest.mark.parametrize(
    ("sender", "hits"),
    [
        ("", True),
        ("alice@example.org", True),
        ("ALICE@example.org", True),
        ("*@example.org", True),
        ("*@example.net", False),
        ("bob@example.org", False),
    ],
)
def test_a_rule_may_be_for_a_sender_or_a_pattern_of_senders(owner, sender, hits):
    owner.install()
    save(sender=sender)

    assert isinstance(plan("please"), AcceptedPlan) is hits


@pytest.mark.one_database
def test_a_rule_may_be_for_one_identity(owner):
    owner.install()
    mine, other = IdentityFactory(), IdentityFactory()
    save(identity=mine)

    assert isinstance(plan("please", identity_id=mine.pk), AcceptedPlan)
    assert isinstance(plan("please", identity_id=other.pk), PlanRefused)


@pytest.mark.fault("W15")
def test_what_no_rule_matches_ends_in_the_else_path_without_any_run():
    refused = plan("what is the weather?")

    assert refused == PlanRefused("no-plan", "no rule and no planner has an answer")


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("calls", "rule"),
    [
        ([{"command": "nobody"}], "unknown-command"),
        ([{"command": "greet"}, {"command": "nobody"}], "unknown-command"),
        ([{"command": "send"}], "invalid-argument"),
        ([{"command": "plan"}], "reserved-command"),
        ([{"command": "reply"}], "no-plan"),
        ([{"command": "greet", "args": {"x": 1}}], "invalid-argument"),
        ([{"command": "greet"}] * 17, "too-many-stages"),
    ],
)
def test_one_bad_call_refuses_the_whole_plan(owner, calls, rule):
    owner.install()
    save(calls=calls)

    refused = plan("please")
    assert isinstance(refused, PlanRefused)
    assert refused.rule == rule


@pytest.mark.one_database
def test_reply_is_stripped_from_a_plan(owner):
    owner.install()
    save(calls=[{"command": "greet"}, {"command": "reply", "args": {"to": "mallory@x.org"}}])

    accepted = plan("please")
    assert isinstance(accepted, AcceptedPlan)
    assert [stage.spec.name for stage in accepted.stages] == ["greet"]


@pytest.mark.one_database
def test_a_command_whose_signature_does_not_hold_now_refuses_the_plan(owner):
    owner.install()
    Command.objects.update(signature="gone")
    save()

    refused = plan("please")
    assert isinstance(refused, PlanRefused)
    assert refused.rule == "command-not-runnable"


@pytest.mark.one_database
def test_a_planner_that_is_asked_after_the_rules_is_checked_the_same(owner):
    owner.install()

    class Hostile:
        name = "hostile"

        def plan(self, request):
            return Plan("hostile", (CommandCall("greet", {"--exec": "sh"}),))

    registry.register_planner(Hostile())
    try:
        refused = plan("anything")
        save()
        accepted = plan("please")
    finally:
        del registry._planners["hostile"]

    assert isinstance(refused, PlanRefused)
    assert (refused.planner, refused.rule) == ("hostile", "invalid-argument")
    assert isinstance(accepted, AcceptedPlan)
    assert accepted.planner == "rule:rule"


@pytest.mark.one_database
def test_trying_rules_shows_the_calls_and_counts_nothing(owner):
    owner.install()
    rule = save(calls=[{"command": "greet"}, {"command": "nobody"}])
    events = Event.objects.count()

    trial = dry_run.of_text("please", sender="alice@example.org", identity_id=None)

    assert trial.planner == "rule:rule"
    assert [call.command for call in trial.calls] == ["greet"]
    assert trial.refused is not None and trial.refused.rule == "unknown-command"
    rule.refresh_from_db()
    assert rule.hits == 0
    assert Event.objects.count() == events
    assert dry_run.of_text("no", sender="", identity_id=None).planner == "none"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": "Bad Name"}, "name"),
        ({"match": " "}, "match"),
        ({"match": "status?"}, "match"),
        ({"match": "x" * 2001}, "match"),
        ({"match": "(", "kind": "regex"}, "match"),
        ({"match": r"(a)\1", "kind": "regex"}, "match"),
        ({"match": "a(?=b)", "kind": "regex"}, "match"),
        ({"kind": "glob"}, "kind"),
        ({"sender": "*@[x"}, "sender"),
        ({"calls": []}, "calls"),
        ({"calls": "greet"}, "calls"),
        ({"calls": [{"args": {}}]}, "calls[0]"),
        ({"calls": [{"command": "greet", "shell": True}]}, "calls[0]"),
        ({"calls": [{"command": "greet", "args": []}]}, "calls[0].args"),
        ({"calls": [{"command": "greet", "args": {"a": {"group": "no"}}}]}, "calls[0].args.a"),
        ({"calls": [{"command": "greet", "args": {"a": {"group": []}}}]}, "calls[0].args.a"),
        ({"calls": [{"command": "greet", "args": {"a": float("nan")}}]}, "calls"),
        ({"calls": [{"command": "greet", "args": {"a": "\ud800"}}]}, "calls"),
        ({"calls": [{"command": "gr\0et"}]}, "calls"),
    ],
)
def test_a_rule_that_cannot_be_read_is_refused_with_its_field(fields, field):
    with pytest.raises(RuleInvalid) as refusal:
        save(**fields)

    assert refusal.value.field == field
    assert Rule.objects.count() == 0


@pytest.mark.one_database
@pytest.mark.parametrize(
    "written",
    [
        {"match": "((("},
        {"sender": "[["},
        {"calls": [5]},
        {"calls": "x"},
        {"calls": [{"command": 5}]},
        {"calls": [{"command": "greet", "args": 5}]},
        {"calls": [{"command": "greet", "args": {"name": {"group": []}}}]},
    ],
)
def test_a_row_that_was_written_past_us_plans_nothing_and_stops_no_other(owner, written):
    owner.install()
    for position, name in enumerate(("broken", "whole")):
        rules.save_rule(
            name=name, kind="regex", match="greet", calls=[{"command": "greet"}],
            position=position, by=OPERATOR,
        )  # fmt: skip
    assert plan("greet").planner == "rule:broken"
    Rule.objects.filter(name="broken").update(**written)
    assert plan("greet").planner == "rule:whole"
    rules.remove_rule(name="broken", by=OPERATOR)


@pytest.mark.one_database
def test_an_expression_takes_linear_time():
    save(match=r"(a+)+$", kind="regex")
    began = time.process_time()

    plan("a" * 60_000 + "!")

    assert time.process_time() - began < 5


def test_saving_and_removing_a_rule_are_events():
    save()
    save(match="other")
    rules.remove_rule(name="rule", by=OPERATOR)

    kinds = Event.objects.filter(kind__startswith="rule.").order_by("seq")
    assert list(kinds.values_list("kind", flat=True)) == [
        "rule.saved", "rule.saved", "rule.removed"
    ]  # fmt: skip
    with pytest.raises(NotFound):
        rules.remove_rule(name="rule", by=OPERATOR)

"""The console's dry run of mail that is there: plan, vector, contract, and what holds it."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from pipelines.models import Mission, Pipeline
from pipelines.services import commands, rules
from tests.pipelines.factories import OPERATOR, cli

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]


def shown(admin_client: Client, message) -> str:
    answer = admin_client.get(reverse("admin:pipelines_rule_dry_run", args=[message.pk]))
    assert answer.status_code == 200
    return answer.content.decode()


def test_the_plan_its_vectors_and_contracts_are_shown(desk, owner, admin_client: Client):
    owner.install(fixed_args=["hello"])
    claude = {
        "schema": "command/1", "name": "think", "serial": 1, "prompt": "Think.",
        "budget": {"rounds": 1},
    }  # fmt: skip
    commands.load_file(owner.write(claude), by=OPERATOR)
    rules.save_rule(
        name="both", match="greet", calls=[{"command": "greet"}, {"command": "think"}], by=OPERATOR
    )
    page = shown(admin_client, desk.message("greet"))
    assert "Planned by <strong>rule:both</strong>" in page
    assert "Argument vector" in page and "hello" in page
    assert "Contract" in page and "&quot;rounds&quot;: 1" in page
    assert "waits to be taken" in page
    assert (Pipeline.objects.count(), Mission.objects.count()) == (0, 0)


def test_what_would_hold_it_now_stands_beside_the_plan(desk, owner, admin_client, settings):
    owner.install()
    rules.save_rule(name="greet", match="greet", calls=[{"command": "greet"}], by=OPERATOR)
    message = desk.message("greet", execution="none", rule="signature-too-old", verdict="hold")
    settings.EXECUTE_MAX_AGE_HOURS = 0
    page = shown(admin_client, message)
    assert "It would start nothing now" in page and "signature-too-old" in page
    assert "Planned by <strong>rule:greet</strong>" in page
    assert "signed too long ago" in page


def test_a_refused_plan_and_none_at_all_say_so(desk, owner, admin_client, settings):
    commands.load_file(owner.write(cli(), signature=""), by=OPERATOR)
    rules.save_rule(name="greet", match="greet", calls=[{"command": "greet"}], by=OPERATOR)
    assert "the plan is refused by" in shown(admin_client, desk.message("greet"))
    other = desk.message("good morning")
    assert "No rule fits: the requester would get the fixed text" in shown(admin_client, other)
    settings.PLANNER = "claude"
    assert "a dry run does not ask" in shown(admin_client, other)


def test_words_of_mail_that_may_not_be_read_are_no_arguments_here(desk, owner, admin_client):
    owner.install(args=[{"name": "whom", "type": "string", "position": 1}])
    calls = [{"command": "greet", "args": {"whom": {"group": "whom"}}}]
    rules.save_rule(
        name="greet", kind="regex", match=r"greet (?P<whom>\S+)", calls=calls, by=OPERATOR
    )
    message = desk.message("greet Rumpelstiltskin")
    assert "Rumpelstiltskin" in shown(admin_client, message)
    desk.permission.read = False
    desk.permission.save()
    page = shown(admin_client, message)
    assert "Rumpelstiltskin" not in page and "reveal it on its page" in page

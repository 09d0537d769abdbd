"""`why_no_pipeline`: one rule, one sentence and one next step for every mail without work."""

from __future__ import annotations

import pytest

from guards.types import Rule
from pipelines import reasons, selectors
from pipelines.services import intake, rules
from pipelines.types import PlanRule
from tests.pipelines.factories import OPERATOR, MessageFactory

pytestmark = pytest.mark.django_db


def why(message) -> str:
    message.refresh_from_db()
    found = selectors.why_no_pipeline(message)
    assert found.sentence and found.next_step
    assert found.started == (found.rule == reasons.STARTED)
    return found.rule


@pytest.mark.one_database
def test_each_way_to_no_work_is_named_and_work_is_none(desk, owner):
    owner.install()
    rules.save_rule(name="greet", match="greet", calls=[{"command": "greet"}], by=OPERATOR)
    rules.save_rule(name="gone", match="gone", calls=[{"command": "absent"}], by=OPERATOR)
    worked, unplanned, refused = (desk.message(text) for text in ("greet", "hello", "gone"))
    assert why(worked) == reasons.WAITING
    for message in (worked, unplanned, refused):
        intake.take_in(message_id=message.pk)
    assert why(worked) == reasons.STARTED
    assert why(unplanned) == PlanRule.NO_PLAN
    assert why(refused) == PlanRule.UNKNOWN_COMMAND
    assert "absent" in selectors.why_no_pipeline(refused).sentence
    for rule in (Rule.TRUST_TOO_LOW, Rule.READ_PERMITTED, Rule.FIRST_PASS, Rule.REPLAYED):
        assert why(MessageFactory(rule=rule, verdict="hold", execution="none")) == rule


def test_every_rule_that_can_keep_a_mail_from_work_has_its_words():
    not_about_mail = {
        Rule.NO_WRITE, Rule.WRITE_PERMITTED, Rule.OPERATOR_OVERRIDE, Rule.OWN_MAILBOX,
        Rule.OWNER_NOTICE,
    }  # fmt: skip
    assert {str(rule) for rule in {*Rule, *PlanRule} - not_about_mail} <= set(reasons.REASONS)
    assert all(map(all, reasons.REASONS.values()))

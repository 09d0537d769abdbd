"""The dry run of a stored message in the console, and a rule's hits by day."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from pipelines.models import Pipeline
from pipelines.services import rules
from tests.console.sample import Sample
from tests.console.test_get_is_safe import state_of_the_house
from tests.pipelines.factories import OPERATOR

pytestmark = pytest.mark.one_database


def page(client: Client, message: object) -> str:
    answer = client.get(reverse("admin:pipelines_rule_dry_run", args=[message.pk]))
    assert answer.status_code == 200
    return answer.content.decode()


def test_it_shows_plan_and_vector_and_stores_nothing(console: Client, sample: Sample):
    request = Pipeline.objects.order_by("created_at").first().message
    before = state_of_the_house()
    shown = page(console, request)
    assert "Dry run" in shown and "Nothing runs" in shown
    assert state_of_the_house() == before
    address = reverse("admin:pipelines_rule_dry_run", args=[request.pk])
    assert console.post(address).status_code == 405
    assert console.get(reverse("admin:pipelines_rule_dry_run", args=[10**20])).status_code == 404
    assert console.get(reverse("admin:pipelines_rule_dry_run", args=[10**6])).status_code == 404


def test_only_those_who_may_see_messages_and_rules_see_it(client: Client, sample: Sample):
    request = Pipeline.objects.order_by("created_at").first().message
    user = User.objects.create_user("ruth", password="ruth-pass-1", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="view_rule"))
    client.force_login(user)
    address = reverse("admin:pipelines_rule_dry_run", args=[request.pk])
    assert client.get(address).status_code == 403
    user.user_permissions.add(Permission.objects.get(codename="view_message"))
    assert client.get(address).status_code == 200


def test_a_rules_page_shows_its_hits_by_day(console: Client, db: None):
    rule = rules.save_rule(name="r", match="r", calls=[{"command": "c"}], by=OPERATOR)
    address = reverse("admin:pipelines_rule_change", args=[rule.pk])
    assert "Mail that it planned" not in console.get(address).content.decode()
    rules.count_hit(name="r")
    rule.days.create(day=timezone.now().date() - timedelta(days=1), hits=3)
    shown = console.get(address).content.decode()
    assert "Mail that it planned, by day" in shown
    assert '<meter class="cs-wide" min="0" max="100" value="33">1</meter>' in shown

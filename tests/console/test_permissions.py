"""Who gets in, and who may press what."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from guards.models import Decision
from mail.models import Message
from tests.console.sample import Sample
from tests.console.test_get_is_safe import acts, pages, state_of_the_house

pytestmark = pytest.mark.one_database


def test_somebody_unknown_is_sent_to_the_login(client: Client, sample: Sample):
    for url in [*pages(), *acts()]:
        answer = client.get(url)
        assert answer.status_code == 302, url
        assert answer["Location"].startswith(reverse("admin:login")), url


def test_somebody_unknown_changes_nothing_by_posting(client: Client, sample: Sample):
    before = state_of_the_house()
    for url in acts():
        answer = client.post(url)
        assert answer.status_code == 302, url
        assert answer["Location"].startswith(reverse("admin:login")), url
    assert state_of_the_house() == before


def test_an_onlooker_sees_pages_and_presses_nothing(onlooker: Client, sample: Sample):
    page = onlooker.get(reverse("admin:mail_message_change", args=[sample.stranger.pk]))
    assert page.status_code == 200
    assert reverse("admin:mail_message_reveal", args=[sample.stranger.pk]) not in str(page.content)
    before = state_of_the_house()
    for url in acts():
        assert onlooker.post(url).status_code == 403, url
    assert state_of_the_house() == before


def test_an_act_without_its_token_is_refused(operator, sample: Sample):
    client = Client(enforce_csrf_checks=True)
    client.force_login(operator)
    url = reverse("admin:mail_message_reveal", args=[sample.stranger.pk])
    assert client.post(url).status_code == 403
    assert Message.objects.get(pk=sample.stranger.pk).revealed_at is None


def test_revealing_is_a_decision_of_the_operator(console: Client, sample: Sample):
    console.post(reverse("admin:mail_message_reveal", args=[sample.stranger.pk]))
    decision = Decision.objects.filter(subject_id=str(sample.stranger.pk)).first()
    assert decision is not None
    assert (decision.action, decision.asker) == ("reveal", "operator:olga")


def test_rows_cannot_be_written_through_the_admin_itself(console: Client, sample: Sample):
    before = state_of_the_house()
    url = reverse("admin:mail_message_change", args=[sample.stranger.pk])
    assert console.post(url, {"subject": "changed"}).status_code == 405
    for name in ("mail_message_delete", "approvals_effect_delete", "teams_event_delete"):
        row = {"m": sample.stranger.pk, "a": sample.unknown.pk, "t": 1}[name[0]]
        assert (
            console.post(reverse(f"admin:{name}", args=[row]), {"post": "yes"}).status_code == 403
        )
    assert state_of_the_house() == before


def test_somebody_of_the_staff_without_rights_learns_nothing_from_the_index(sample: Sample):
    nina = User.objects.create_user("nina", password="nina-pass-1", is_staff=True)
    browser = Client()
    browser.force_login(nina)
    page = browser.get(reverse("admin:index"))
    assert (page.status_code, page.context["needs"], page.context["needs_total"]) == (200, [], 0)
    assert (page.context["figures"], page.context["plots"], page.context["events"]) == ([], [], [])
    for said in ("partners.example", "unknown.example", "mail.received", "ada-inbox"):
        assert said not in page.content.decode(), said


def test_each_right_shows_its_own_part_of_the_index(sample: Sample):
    nina = User.objects.create_user("nina", password="nina-pass-1", is_staff=True)
    nina.user_permissions.set(Permission.objects.filter(codename="view_message"))
    browser = Client()
    browser.force_login(nina)
    page = browser.get(reverse("admin:index"))
    assert {need.kind for need in page.context["needs"]} == {"held-mail"}
    assert [figure.title for figure in page.context["figures"]] == ["Mail"]
    shown = browser.get(reverse("admin:mail_message_change", args=[sample.executed.pk]))
    assert "In the record" not in shown.content.decode()

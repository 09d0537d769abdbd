"""What waits is counted in one statement, each kind by its own query, for whom may see it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, Permission, User
from django.db import connection
from django.http import HttpRequest
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from approvals.models import Hold
from config import needs
from config.need import counting
from guards.models import Identity
from mail.models import Message
from tests.console.sample import Sample


def asked_by(user: Any) -> HttpRequest:
    request = HttpRequest()
    request.user = user
    return request


def viewer(*models: str) -> User:
    user = User.objects.create_user("vera", password="vera-pass-1", is_staff=True)
    names = [f"view_{model}" for model in models]
    user.user_permissions.set(Permission.objects.filter(codename__in=names))
    return User.objects.get(pk=user.pk)


def test_each_kind_is_counted_as_its_own_query_counts(
    sample: Sample, operator_after: User, django_assert_num_queries: Any
):
    alone = {kind: make().count() for kind, make, _ in needs._SOURCES}
    assert sum(bool(number) for number in alone.values()) >= 10
    with django_assert_num_queries(1):
        together = needs.counts(asked_by(operator_after))
    assert together == alone


@pytest.mark.one_database
def test_a_request_asks_once_however_often_it_shows_them(
    sample: Sample, operator_after: User, django_assert_num_queries: Any
):
    request = asked_by(operator_after)
    first = needs.counts(request)
    with django_assert_num_queries(0):
        assert needs.counts(request) is first


@pytest.mark.one_database
def test_only_what_somebody_may_see_is_counted(sample: Sample):
    seen = needs.counts(asked_by(viewer("hold", "account")))
    assert set(seen) == {"held-reply", "failing-account"}
    assert seen["held-reply"] == needs.held_replies().count() > 0


def test_whoever_may_see_nothing_is_told_of_nothing_and_asks_nothing(
    db: None, django_assert_num_queries: Any
):
    with django_assert_num_queries(0):
        assert needs.counts(asked_by(AnonymousUser())) == {}


@pytest.mark.one_database
def test_what_is_asked_is_the_same_text_whenever_it_is_asked(sample: Sample):
    for kind, make, _ in needs._SOURCES:
        assert repr(counting([make()])) == repr(counting([make()])), kind


def test_what_time_alone_changes_is_seen_without_another_text(sample: Sample, operator_after: User):
    before = needs.counts(asked_by(operator_after))["held-mail"]
    held = needs.held_mail().order_by("-received_at").first()
    assert held is not None
    Message.objects.filter(pk=held.pk).update(
        received_at=timezone.now() - needs.HELD_MAIL_ASKS_FOR - timedelta(minutes=1)
    )
    assert needs.counts(asked_by(operator_after))["held-mail"] == before - 1


def test_a_query_that_can_have_no_rows_counts_none(sample: Sample):
    statement, parameters = counting([Message.objects.none(), Identity.objects.all()])
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        assert cursor.fetchone() == (0, Identity.objects.count())


@pytest.mark.one_database
def test_a_page_shows_the_counts_of_one_statement(
    console: Client, sample: Sample, operator_after: User
):
    url = reverse("admin:guards_contact_changelist")
    console.get(url)
    with CaptureQueriesContext(connection) as captured:
        html = console.get(url).content.decode()
    counts = [query["sql"] for query in captured if "COUNT(*)" in query["sql"]]
    assert len([sql for sql in counts if Hold._meta.db_table in sql]) == 1
    assert f">{sum(needs.counts(asked_by(operator_after)).values())}<" in "".join(html.split())

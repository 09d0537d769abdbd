"""Settings under which the queue could do something twice are refused at start."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.db import connection
from django_q.models import Failure, OrmQ, Schedule, Success

from guards.queue.checks import check_queue


def test_the_shipped_settings_pass():
    assert check_queue(None) == []


@pytest.mark.fault("queue-01", "queue-02", "queue-03", "queue-05")
@pytest.mark.parametrize(
    ("change", "identifier"),
    [
        ({"retry": 120, "timeout": 600}, "guards.E103"),
        ({"timeout": None}, "guards.E102"),
        ({"max_attempts": 0}, "guards.E104"),
        ({"ack_failures": False}, "guards.E104"),
        ({"broker_class": "django_q.brokers.orm.ORM"}, "guards.E101"),
        ({"save_limit": 250}, "guards.E105"),
        ({"scheduler": True}, "guards.E106"),
        ({"bulk": 10}, "guards.E107"),
    ],
)
def test_it_refuses_settings_that_repeat_work(settings, change, identifier):
    settings.Q_CLUSTER = {**settings.Q_CLUSTER, **change}
    assert identifier in [message.id for message in check_queue(None)]


def test_the_queue_has_no_admin_pages_of_its_own():
    for model in (Schedule, Success, Failure, OrmQ):
        assert not admin.site.is_registered(model)


@pytest.mark.only_on("sqlite")
@pytest.mark.django_db
@pytest.mark.fault("queue-06", "queue-07")
def test_sqlite_really_has_the_pragmas_that_the_settings_name():
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout")
        assert cursor.fetchone()[0] >= 20_000
        cursor.execute("PRAGMA synchronous")
        assert cursor.fetchone()[0] == 2
    assert connection.settings_dict["OPTIONS"]["transaction_mode"] == "IMMEDIATE"

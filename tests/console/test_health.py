"""`/healthz` and `/readyz`."""

from __future__ import annotations

from datetime import timedelta

from django.test import Client
from django.utils import timezone

from guards.models import Heartbeat
from tests.console.sample import Sample


def beat(role: str, age: float = 0) -> None:
    seen = timezone.now() - timedelta(seconds=age)
    Heartbeat.objects.create(holder=f"here:1:2:{role}", role=role, seen_at=seen)


def test_healthz_answers_without_a_login_and_without_the_database(client: Client):
    assert client.get("/healthz").json() == {"status": "alive"}


def test_readyz_names_every_check(client: Client, db: None):
    answer = client.get("/readyz")
    assert answer.status_code == 503
    checks = answer.json()["checks"]
    assert list(checks) == ["database", "migrations", "broker", "layer", "worker", "watcher"]
    assert not checks["worker"]["ok"] and "start it" in checks["worker"]["detail"]


def test_readyz_is_ready_with_a_worker_and_nothing_to_watch(client: Client, db: None):
    beat("worker")
    assert client.get("/readyz").status_code == 200


def test_readyz_wants_a_watcher_where_there_is_something_to_watch(client: Client, sample: Sample):
    beat("worker")
    answer = client.get("/readyz")
    assert answer.status_code == 503 and not answer.json()["checks"]["watcher"]["ok"]
    beat("watcher")
    assert client.get("/readyz").status_code == 200


def test_a_heartbeat_of_long_ago_does_not_count(client: Client, db: None):
    beat("worker", age=600)
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert "restart it" in answer.json()["checks"]["worker"]["detail"]


def test_health_is_not_changed_by_posting(client: Client, db: None):
    assert client.post("/healthz").status_code == 405

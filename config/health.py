"""Is this process alive, and can this installation do its main job: `/healthz` and `/readyz`.

Both answer without a login and say nothing private: names of checks, yes or no, and one sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from django_q.brokers import get_broker

from guards import selectors as guards_selectors
from mail.models import Account

#: A process that has not said anything for so long counts as gone.
STALE_AFTER = timedelta(seconds=90)


@dataclass(frozen=True, slots=True)
class Check:
    """One question and its answer; `detail` says what to do when it is no."""

    name: str
    ok: bool
    detail: str


@never_cache
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """This process answers. Nothing else is asked."""
    return JsonResponse({"status": "alive"})


@never_cache
@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """200 when everything the main job needs is there, else 503; every check is named."""
    checks = run_checks()
    ready = all(check.ok for check in checks)
    body = {
        "status": "ready" if ready else "not-ready",
        "checks": {check.name: {"ok": check.ok, "detail": check.detail} for check in checks},
    }
    return JsonResponse(body, status=200 if ready else 503)


def run_checks() -> list[Check]:
    """All checks in their order; the rest is not asked once the database does not answer."""
    database = _attempt("database", _database)
    if not database.ok:
        return [database]
    rest: tuple[tuple[str, Callable[[], str]], ...] = (
        ("migrations", _migrations),
        ("broker", _broker),
        ("layer", _layer),
        ("worker", lambda: _heartbeat("worker")),
        ("watcher", _watcher),
    )
    return [database, *(_attempt(name, question) for name, question in rest)]


class NotReady(Exception):
    """A check says no; the text is what an operator reads."""


def _attempt(name: str, question: Callable[[], str]) -> Check:
    try:
        return Check(name, True, question())
    except NotReady as problem:
        return Check(name, False, str(problem))
    except Exception as problem:  # noqa: BLE001 - any failure of a check is its answer
        return Check(name, False, f"failed: {type(problem).__name__}")


def _database() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchone()
    except DatabaseError:
        raise NotReady("the database does not answer: check DATABASE_URL") from None
    return connection.vendor


def _migrations() -> str:
    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if missing:
        raise NotReady(f"{len(missing)} migrations are missing: run `manage.py migrate`")
    return DEFAULT_DB_ALIAS


def _broker() -> str:
    broker = get_broker()
    if not broker.ping():
        raise NotReady("the queue's broker does not answer")
    return str(broker.info())


def _layer() -> str:
    layer = get_channel_layer()
    if layer is None:
        raise NotReady("no channel layer is configured")

    async def round_trip() -> None:
        channel = await layer.new_channel("readyz")
        await layer.send(channel, {"type": "readyz"})
        await layer.receive(channel)

    async_to_sync(round_trip)()
    return type(layer).__name__


def _heartbeat(role: str) -> str:
    beat = guards_selectors.latest_heartbeat(role)
    if beat is None:
        raise NotReady(f"no {role} is running: start it (`manage.py up` starts all)")
    age = timezone.now() - beat.seen_at
    if age > STALE_AFTER:
        raise NotReady(f"the {role} was last seen {int(age.total_seconds())} s ago: restart it")
    return "seen in time"


def _watcher() -> str:
    if not Account.objects.exclude(state=Account.State.DISABLED).exists():
        return "no account to watch yet"
    return _heartbeat("watcher")

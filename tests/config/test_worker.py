"""The real worker process runs registered tasks, and nothing that was written into its tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers import Installation
from tests.servers.presence import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

_WRITE_ROWS = """
from django.db import connection
from django.utils import timezone
from django_q.models import OrmQ
from django_q.signing import SignedPackage

command = "touch " + target
with connection.cursor() as cursor:
    cursor.execute(
        "INSERT INTO django_q_schedule (name, func, args, kwargs, schedule_type, repeats, next_run)"
        " VALUES ('x', 'os.system', %s, %s, 'O', -1, %s)",
        [repr((command,)), "{'q_options': {'sync': True}}", timezone.now()],
    )
package = SignedPackage.dumps(
    {"id": "a", "name": "a", "func": "os.system", "args": (command,), "kwargs": {}}
)
OrmQ.objects.create(key="countersign", payload=package, lock=timezone.now())
"""

_LOOK = """
from django_q.models import Schedule
from teams.models import Event
answer = {
    "schedules": sorted(Schedule.objects.values_list("func", flat=True)),
    "refused": [e.facts for e in Event.objects.filter(kind="queue.refused")],
}
"""


def _queued(house: Installation) -> int:
    return int(house.rows("SELECT count(*) FROM django_q_ormq")[0][0])


def _beats(house: Installation) -> list[tuple[Any, ...]]:
    return house.rows("SELECT role FROM guards_heartbeat")


def _is_tended(house: Installation) -> bool:
    return ("worker",) in _beats(house) and (bool(house.env["REDIS_URL"]) or _queued(house) == 0)


@pytest.fixture(params=["sqlite", "postgresql", "redis"])
def house(request: pytest.FixtureRequest, short_directory: Path) -> Iterator[Installation]:
    url, env = "", {}
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_server").new_database()
    if request.param == "redis":
        env["REDIS_URL"] = request.getfixturevalue("redis_server").url
    with Installation(short_directory, database_url=url, **env) as made:
        yield made


def test_rows_that_somebody_wrote_never_run(house: Installation):
    target = house.directory / "was-run"
    house.python(_WRITE_ROWS, target=str(target))
    worker = house.worker()
    wanted = 1 if house.env["REDIS_URL"] else 2
    wait_until(lambda: worker.output().count("task refused") >= wanted, "the refusals", 60)
    wait_until(lambda: _is_tended(house), "an empty queue", 60)
    assert worker.stop() == 0, worker.output()
    seen = house.python(_LOOK)
    assert not target.exists()
    assert "os.system" not in seen["schedules"]
    assert {fact["path"] for fact in seen["refused"]} == {"os.system"}
    assert _beats(house) == []
    if not house.env["REDIS_URL"]:
        assert _queued(house) == 0, "what may run ran, and what may not was deleted"

"""The real worker process runs registered tasks, and nothing that was written into its tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django_q.signing import SignedPackage

from tests.servers import Installation
from tests.servers.presence import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

_SCHEDULE = (
    "INSERT INTO django_q_schedule (name, func, args, kwargs, schedule_type, repeats, next_run)"
    " VALUES ('x', 'os.system', %s, %s, 'O', -1, CURRENT_TIMESTAMP)"
)
_QUEUED = (
    "INSERT INTO django_q_ormq (key, payload, lock) VALUES ('countersign', %s, CURRENT_TIMESTAMP)"
)


def _write_rows(house: Installation, command: str) -> None:
    """As somebody would who can write the database and even has the key that signs packages."""
    house.execute(_SCHEDULE, repr((command,)), "{'q_options': {'sync': True}}")
    package = {"id": "a", "name": "a", "func": "os.system", "args": (command,), "kwargs": {}}
    house.execute(_QUEUED, SignedPackage.dumps(package))


def _refused(house: Installation) -> set[str]:
    rows = house.rows("SELECT facts FROM teams_event WHERE kind = 'queue.refused'")
    return {json.loads(facts)["path"] for (facts,) in rows}


def _queued(house: Installation) -> int:
    return int(house.rows("SELECT count(*) FROM django_q_ormq")[0][0])


def _beats(house: Installation) -> list[tuple[Any, ...]]:
    return house.rows("SELECT role FROM guards_heartbeat")


def _is_tended(house: Installation) -> bool:
    return ("worker",) in _beats(house) and (bool(house.env["REDIS_URL"]) or _queued(house) == 0)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.soak), "redis"])
def house(
    request: pytest.FixtureRequest, short_directory: Path, settings: Any
) -> Iterator[Installation]:
    """The queue in SQLite or in Redis; that in PostgreSQL is the same code as the one in SQLite."""
    url, env = "", {"SECRET_KEY": settings.SECRET_KEY}
    if request.param == "postgresql":
        server = request.getfixturevalue("postgres_server")
        url = server.new_database(server.migrated())
    if request.param == "redis":
        env["REDIS_URL"] = request.getfixturevalue("redis_server").url
    with Installation(short_directory, database_url=url, **env) as made:
        yield made


def test_rows_that_somebody_wrote_never_run(house: Installation):
    target = house.directory / "was-run"
    _write_rows(house, f"touch {target}")
    worker = house.worker()
    wanted = 1 if house.env["REDIS_URL"] else 2
    wait_until(lambda: worker.output().count("task refused") >= wanted, "the refusals", 60)
    wait_until(lambda: _is_tended(house), "an empty queue", 60)
    assert worker.stop() == 0, worker.output()
    assert not target.exists()
    assert ("os.system",) not in house.rows("SELECT func FROM django_q_schedule")
    assert _refused(house) == {"os.system"}
    assert _beats(house) == []
    if not house.env["REDIS_URL"]:
        assert _queued(house) == 0, "what may run ran, and what may not was deleted"

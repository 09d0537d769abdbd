"""Fixtures for every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings

from guards import triggers

#: Passwords of test users are worth no work.
settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

_DATABASE_FIXTURES = {"db", "transactional_db", "django_db_serialized_rollback", "live_server"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--touching-database`: the second database's run need not repeat what is the same there."""
    parser.addoption(
        "--touching-database",
        action="store_true",
        help="collect only tests that use the database of this run, without `one_database`",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what never touches the database, where that was asked for."""
    if not config.getoption("--touching-database"):
        return
    others = [item for item in items if not _touches_database(item)]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if _touches_database(item)]


def _touches_database(item: pytest.Item) -> bool:
    if item.get_closest_marker("one_database") is not None:
        return False
    fixtures = getattr(item, "fixturenames", ())
    return item.get_closest_marker("django_db") is not None or not _DATABASE_FIXTURES.isdisjoint(
        fixtures
    )


@pytest.fixture(autouse=True)
def lifted_triggers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Lift the triggers for the flush that ends a transactional test.

    The flush empties append-only tables, which is what triggers refuse. It announces
    `post_migrate` at its end, and that puts them back.
    """
    marker = request.node.get_closest_marker("django_db")
    by_marker = marker is not None and marker.kwargs.get("transaction", False)
    if not by_marker and not {"transactional_db", "live_server"} & set(request.fixturenames):
        yield
        return
    request.getfixturevalue("transactional_db")  # set up before us, so that its flush comes after
    yield
    for label in triggers.protected_apps():
        triggers.lift(label)

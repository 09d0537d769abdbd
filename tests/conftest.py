"""Fixtures for every test."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import pytest_django
from django.conf import settings

from tests import databases, emptying

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


def pytest_configure() -> None:
    """What is loaded and collected stays for the whole run: it is no garbage."""
    gc.disable()


def pytest_collection_finish() -> None:
    """From here on garbage is looked for again, and among what the tests make alone."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Real processes first; leave out what never touches the database, where that was asked for.

    They take longest: at the end of a run one worker would wait for another's.
    """
    items.sort(key=lambda item: item.get_closest_marker("acceptance") is None)
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


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None,
) -> Iterator[None]:
    """Migrate once for all workers of a run, not once in each."""
    with databases.ready_made():
        yield


@pytest.fixture(scope="session")
def django_db_setup(
    django_db_setup: None, django_db_blocker: pytest_django.DjangoDbBlocker
) -> None:
    """The test database; what the migrations left in it is what transactional tests go back to."""
    with django_db_blocker.unblock():
        emptying.remember()
    emptying.use_it()

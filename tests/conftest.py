"""Fixtures for every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings

from guards import triggers

#: Passwords of test users are worth no work.
settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


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

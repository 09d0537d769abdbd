"""An operator, somebody who may only look, and an installation in the middle of its day."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from approvals.services import artifacts
from tests.console import kept
from tests.console.sample import Sample, fill


@pytest.fixture
def operator(db: None) -> User:
    return User.objects.create_superuser("olga", "olga@house.example", "olga-pass-1")


@pytest.fixture
def operator_after(request: pytest.FixtureRequest) -> User:
    """An operator who came after the sample, where a test has both."""
    if "sample" in request.fixturenames:
        request.getfixturevalue("sample")
    person: User = request.getfixturevalue("operator")
    return person


@pytest.fixture
def console(operator_after: User) -> Client:
    """A browser that is logged in as an operator."""
    client = Client()
    client.force_login(operator_after)
    return client


@pytest.fixture
def onlooker(db: None) -> Client:
    """A browser of somebody who may look at everything and press nothing."""
    user = User.objects.create_user("otto", password="otto-pass-1", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def sample(db: None) -> Iterator[Sample]:
    artifacts.ensure_key()
    yield kept.again(fill)

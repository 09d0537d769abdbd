"""A session's authority begins at a login and ends with it, wherever it ends."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from approvals.models import Root
from approvals.services import roots
from guards import triggers
from guards.types import Asker
from teams.models import Event

pytestmark = pytest.mark.django_db

PASSWORD = "a-long-one-of-tests"
ADA = Asker("operator", "ada")


@pytest.fixture
def ada() -> User:
    return User.objects.create_superuser("ada", password=PASSWORD)


@pytest.fixture
def browser(ada: User) -> Client:
    client = Client()
    client.post(reverse("admin:login"), {"username": "ada", "password": PASSWORD})
    return client


def root_of(client: Client) -> Root:
    found = roots.of_session(client.session)
    assert found is not None
    return found


def index(client: Client, **headers: str) -> Any:
    return client.get(reverse("admin:index"), headers=headers)


def events() -> list[str]:
    told = Event.objects.filter(kind__startswith="session.").order_by("seq")
    return [event.kind for event in told]


@pytest.mark.one_database
def test_every_login_has_a_session_of_its_own(browser: Client, ada: User) -> None:
    first = root_of(browser)
    assert (first.principal, first.user) == ("operator:ada", ada)
    browser.post(reverse("admin:login"), {"username": "ada", "password": PASSWORD})
    second = root_of(browser)
    assert second.pk != first.pk
    first.refresh_from_db()
    assert first.ended_at is not None
    assert events() == ["session.minted", "session.ended", "session.minted"]


@pytest.mark.one_database
def test_somebody_else_in_the_same_browser_ends_the_session_before(browser: Client) -> None:
    before = root_of(browser)
    User.objects.create_superuser("bob", password=PASSWORD)
    browser.post(reverse("admin:login"), {"username": "bob", "password": PASSWORD})
    assert root_of(browser).principal == "operator:bob"
    before.refresh_from_db()
    assert before.ended_at is not None


@pytest.mark.one_database
def test_a_new_session_key_keeps_the_session(browser: Client) -> None:
    before = root_of(browser)
    session = browser.session
    session.cycle_key()
    session.save()
    browser.cookies["sessionid"] = session.session_key
    assert index(browser).status_code == 200
    assert root_of(browser).pk == before.pk


def test_a_logout_ends_it(browser: Client) -> None:
    root = root_of(browser)
    browser.post(reverse("admin:logout"))
    root.refresh_from_db()
    assert root.ended_at is not None
    assert roots.of_session(browser.session) is None


@pytest.mark.one_database
def test_ones_own_new_password_keeps_this_session_and_ends_the_others(
    browser: Client, ada: User
) -> None:
    elsewhere = Client()
    elsewhere.post(reverse("admin:login"), {"username": "ada", "password": PASSWORD})
    here, there = root_of(browser), root_of(elsewhere)
    new = "another-long-one-of-tests"
    changed = browser.post(
        reverse("admin:password_change"),
        {"old_password": PASSWORD, "new_password1": new, "new_password2": new},
    )
    assert changed.status_code == 302
    assert index(browser).status_code == 200
    here.refresh_from_db()
    there.refresh_from_db()
    ada.refresh_from_db()
    assert root_of(browser).pk == here.pk
    assert roots.is_live(Root.objects.get(pk=here.pk))
    assert not roots.is_live(Root.objects.get(pk=there.pk))
    assert index(elsewhere).status_code == 302


@pytest.mark.one_database
@pytest.mark.parametrize("change", [{"is_active": False}, {"is_staff": False}])
def test_somebody_who_may_not_be_here_any_more_carries_nothing(
    browser: Client, ada: User, change: dict[str, bool]
) -> None:
    root = root_of(browser)
    User.objects.filter(pk=ada.pk).update(**change)
    assert not roots.is_live(Root.objects.get(pk=root.pk))
    assert index(browser).status_code == 302


@pytest.mark.one_database
def test_a_revoked_session_is_logged_out_and_stays_revoked(browser: Client) -> None:
    root = root_of(browser)
    roots.revoke(root_id=root.pk, by=Asker("operator", "bob"), reason="the laptop is lost")
    assert index(browser).status_code == 302
    root.refresh_from_db()
    assert (root.revoked_by, root.revoked_reason) == ("operator:bob", "the laptop is lost")
    told = Event.objects.get(kind="session.revoked")
    assert "laptop" not in str(told.facts)
    browser.post(reverse("admin:login"), {"username": "ada", "password": PASSWORD})
    assert root_of(browser).pk != root.pk


def _age(root: Root, **changes: object) -> None:
    triggers.lift("approvals")
    Root.objects.filter(pk=root.pk).update(**changes)


@pytest.mark.one_database
@pytest.mark.parametrize("column", ["idle_until", "expires_at"])
def test_a_session_that_is_over_is_logged_out(browser: Client, column: str) -> None:
    root = root_of(browser)
    past = timezone.now() - timedelta(seconds=1)
    changes = {"idle_until": past, column: past}
    _age(root, **changes)
    assert index(browser).status_code == 302
    assert roots.of_session(browser.session) is None


@pytest.mark.one_database
def test_using_the_console_begins_idleness_anew_never_past_the_end(browser: Client) -> None:
    root = root_of(browser)
    soon = timezone.now() + timedelta(minutes=2)
    _age(root, idle_until=soon)
    index(browser)
    root.refresh_from_db()
    assert root.idle_until > soon + timedelta(minutes=30)
    end = timezone.now() + timedelta(minutes=10)
    _age(root, idle_until=soon, expires_at=end)
    index(browser)
    root.refresh_from_db()
    assert root.idle_until == root.expires_at


#: Requests that a browser makes by itself, or that are none of the console.
BACKGROUND: dict[str, tuple[str, dict[str, str]]] = {
    "a panel that refreshes itself": ("admin:index", {"Sec-Fetch-Mode": "cors"}),
    "the same, of one page": ("admin:index", {"Sec-Fetch-Mode": "same-origin"}),
    "a script of an old browser": ("admin:index", {"X-Requested-With": "feed"}),
    "health": ("healthz", {}),
}


@pytest.mark.one_database
@pytest.mark.parametrize("name", BACKGROUND)
def test_what_nobody_sits_before_does_not_keep_it_alive(browser: Client, name: str) -> None:
    root = root_of(browser)
    soon = timezone.now() + timedelta(minutes=2)
    _age(root, idle_until=soon)
    address, headers = BACKGROUND[name]
    browser.get(reverse(address), headers=headers)
    root.refresh_from_db()
    assert root.idle_until == soon


@pytest.mark.one_database
def test_the_api_neither_needs_nor_keeps_a_session(browser: Client) -> None:
    root = root_of(browser)
    soon = timezone.now() + timedelta(minutes=2)
    _age(root, idle_until=soon)
    assert browser.get("/api/v1/holds").status_code == 401
    root.refresh_from_db()
    assert root.idle_until == soon


@pytest.mark.one_database
def test_the_session_of_another_user_is_not_adopted(browser: Client, ada: User) -> None:
    bob = User.objects.create_superuser("bob", password=PASSWORD)
    foreign = roots.mint(user=bob, principal=Asker("operator", "bob"))
    session = browser.session
    session[roots.SESSION_KEY] = str(foreign.pk)
    session.save()
    assert index(browser).status_code == 302

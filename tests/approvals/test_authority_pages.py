"""Sessions, goals, grants, connections and jobs are read in the console, and taken away there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.contrib.auth.models import Permission, User
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from approvals import registry
from approvals.models import Connection, Consent, Effect, Goal, Job, Root
from approvals.services import connections, effects, roots
from guards.models import Identity
from guards.services import identities, tokens
from tests.approvals import factories, sessions
from tests.approvals.sessions import GuardedKind, ScriptedProvider

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]

PAGES = (Root, Goal, Consent, Connection, Job)


@pytest.fixture
def kind(tmp_path: Path) -> Iterator[GuardedKind]:
    provider, guarded = ScriptedProvider(), GuardedKind(tmp_path / "contacts")
    registry.register_kind(guarded)
    registry.register_provider(provider)
    yield guarded
    registry.forget_kind(guarded.name)
    registry.forget_provider(provider.account_type)


@pytest.fixture
def browser() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("ada", password="a-long-one-of-tests"))
    return client


@pytest.fixture
def root(browser: Client) -> Root:
    found = roots.of_session(browser.session)
    assert found is not None
    return found


@pytest.fixture
def connection(root: Root, kind: GuardedKind, tmp_path: Path) -> Connection:
    secret = tmp_path / "very-secret-place"
    secret.write_text("x")
    secret.chmod(0o600)
    return connections.import_connection(
        account=sessions.ACCOUNT,
        use="readonly",
        client_id="client-1",
        client_secret_ref=f"file:{secret}",
        refresh_token_ref=f"file:{secret}",
        by=factories.OPERATOR,
        root=root,
    )


@pytest.fixture
def done(kind: GuardedKind, connection: Connection, root: Root) -> Effect:
    return effects.dispatch(effect_id=sessions.intent(root).pk)


def address(row: Model, act: str = "change") -> str:
    return reverse(f"admin:approvals_{row._meta.model_name}_{act}", args=[row.pk])


def test_each_has_a_list_and_a_page(
    browser: Client, done: Effect, subtests: pytest.Subtests
) -> None:
    for model in PAGES:
        with subtests.test(model.__name__):
            listed = browser.get(reverse(f"admin:approvals_{model._meta.model_name}_changelist"))
            assert listed.status_code == 200
            for row in model._default_manager.all():
                page = browser.get(address(row))
                assert page.status_code == 200
                assert "very-secret-place" not in page.content.decode()


def test_a_grant_shows_its_contacts_and_what_it_belongs_to(browser: Client, done: Effect) -> None:
    assert done.consent is not None
    page = browser.get(address(done.consent)).content.decode()
    assert "1 of 1" in page and "1 of 2" in page
    assert str(done.root_id) in page and str(done.goal_id) in page


def test_a_session_is_revoked_with_a_reason_and_its_person_is_out(
    browser: Client, root: Root
) -> None:
    browser.post(address(root, "revoke"), {"reason": " "})
    root.refresh_from_db()
    assert root.revoked_at is None
    browser.post(address(root, "revoke"), {"reason": "the laptop is lost"})
    root.refresh_from_db()
    assert (root.revoked_by, root.revoked_reason) == ("operator:ada", "the laptop is lost")
    assert browser.get(reverse("admin:index")).status_code == 302


def test_a_grant_is_revoked_and_nothing_is_posted(
    browser: Client, kind: GuardedKind, root: Root
) -> None:
    intent = sessions.intent(root)
    assert intent.consent is not None
    browser.post(address(intent.consent, "revoke"), {"reason": "changed my mind"})
    done = effects.dispatch(effect_id=intent.pk)
    assert (done.phase, done.reason, done.detail["field"]) == (
        "cancelled",
        "authority_revoked",
        "consent",
    )
    assert kind.posts() == 0


def test_a_connection_is_verified_and_revoked_on_its_page(
    browser: Client, connection: Connection
) -> None:
    browser.post(address(connection, "verify"))
    connection.refresh_from_db()
    assert connection.state == "verified"
    browser.post(address(connection, "revoke"), {"reason": "it leaked"})
    connection.refresh_from_db()
    assert (connection.state, connection.revoked_reason) == ("revoked", "it leaked")
    assert 'action="' + address(connection, "revoke") not in browser.get(
        address(connection)
    ).content.decode().replace("'", '"')


@pytest.mark.parametrize("act", ["verify", "revoke"])
def test_looking_at_an_act_does_nothing(browser: Client, connection: Connection, act: str) -> None:
    assert browser.get(address(connection, act)).status_code == 405
    connection.refresh_from_db()
    assert (connection.state, connection.revision) == ("new", 1)


def test_who_may_only_look_takes_nothing_away(root: Root, connection: Connection) -> None:
    otto = User.objects.create_user("otto", password="a-long-one-of-tests", is_staff=True)
    otto.user_permissions.set(
        Permission.objects.filter(codename__in=["view_root", "view_connection"])
    )
    looker = Client()
    looker.force_login(otto)
    for row in (root, connection):
        page = looker.get(address(row))
        assert page.status_code == 200
        assert "<label" not in page.content.decode().partition("cs-acts")[2]
        assert looker.post(address(row, "revoke"), {"reason": "mine now"}).status_code == 403
    assert looker.get(reverse("admin:approvals_job_changelist")).status_code == 403
    root.refresh_from_db()
    assert root.revoked_at is None


def asking(**holder: object) -> Client:
    _, secret = tokens.mint(
        label="reader",
        scopes=["approvals:read"],
        by=factories.OPERATOR,
        **holder,  # type: ignore[arg-type]
    )
    return Client(headers={"authorization": f"Bearer {secret}"})


def test_the_api_tells_an_operators_token_of_connections_without_secrets(
    connection: Connection,
) -> None:
    answer = asking().get("/api/v1/connections")
    assert answer.status_code == 200
    (item,) = answer.json()["items"]
    assert (item["id"], item["use"], item["state"]) == (str(connection.pk), "readonly", "new")
    assert "secret" not in answer.content.decode()


def test_neither_agents_nor_projects_are_told_of_connections(connection: Connection) -> None:
    bot = identities.create_identity(
        handle="bot", kind=Identity.Kind.AGENT, email="bot@example.org", by=factories.OPERATOR
    )
    for token in (asking(identity=bot), asking(project="garden")):
        answer = token.get("/api/v1/connections")
        assert answer.status_code == 403
        assert "operators-only" in answer.content.decode()

"""Connecting an account: by secret reference, proved within five contacts, replaced, revoked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from approvals import registry
from approvals.exceptions import Blocked, ContactRefused
from approvals.models import Approval, Connection, Consent, ContactBudget, Goal, Job, Root
from approvals.services import connections, effects, roots
from approvals.types import Contact
from guards.exceptions import Conflict, InvalidInput, NotFound, Refused
from guards.types import Asker
from teams.models import Event
from tests.approvals import factories, sessions
from tests.approvals.sessions import GuardedKind, ScriptedProvider

pytestmark = pytest.mark.django_db

OPERATOR = factories.OPERATOR


@pytest.fixture(autouse=True)
def provider() -> Iterator[ScriptedProvider]:
    tested = ScriptedProvider()
    registry.register_provider(tested)
    yield tested
    registry.forget_provider(tested.account_type)


@pytest.fixture
def kind(tmp_path: Path) -> Iterator[GuardedKind]:
    guarded = GuardedKind(tmp_path / "contacts")
    registry.register_kind(guarded)
    yield guarded
    registry.forget_kind(guarded.name)


@pytest.fixture
def root() -> Root:
    return sessions.session()


@pytest.fixture
def references(tmp_path: Path) -> dict[str, str]:
    found = {}
    for name in ("client_secret_ref", "refresh_token_ref"):
        path = tmp_path / name
        path.write_text("not-told-to-anybody\n")
        path.chmod(0o600)
        found[name] = f"file:{path}"
    return found


@pytest.fixture
def connect(root: Root, references: dict[str, str]) -> Any:
    def connected(use: str = "read", **changes: Any) -> Connection:
        given: dict[str, Any] = {
            "account": sessions.ACCOUNT,
            "use": use,
            "client_id": "client-1",
            "by": OPERATOR,
            "root": root,
            **references,
            **changes,
        }
        return connections.import_connection(**given)

    return connected


def verify(root: Root | None, group: str = "reply") -> list[Connection]:
    return connections.verify(account=sessions.ACCOUNT, group=group, by=OPERATOR, root=root)


def kinds_of_events() -> list[str]:
    told = Event.objects.filter(kind__startswith="connection.").order_by("seq")
    return [event.kind for event in told]


@pytest.mark.one_database
def test_a_connection_is_imported_by_reference_and_waits_to_be_verified(connect: Any) -> None:
    made = connect()
    assert (made.state, made.revision, made.declared) == ("new", 1, ["scope.read"])
    assert kinds_of_events() == ["connection.imported"]
    assert "not-told" not in str(Event.objects.get(kind="connection.imported").facts)


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"use": "everything"}, "use"),
        ({"client_id": " "}, "client_id"),
        ({"client_id": "two words"}, "client_id"),
        ({"client_secret_ref": "GOCSPX-aB3dE5fG7hI9jK1lM3nO5p"}, "client_secret_ref"),
        ({"refresh_token_ref": "1//0gabcdefghijk"}, "refresh_token_ref"),
        ({"account": factories.request().subject}, "account"),
    ],
)
def test_bad_input_is_named_and_nothing_is_stored(
    connect: Any, changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInput) as refusal:
        connect(**changes)
    assert refusal.value.field == field
    assert not Connection.objects.exists()


@pytest.mark.one_database
def test_a_reference_that_leads_nowhere_is_refused(connect: Any, tmp_path: Path) -> None:
    with pytest.raises(Conflict) as refusal:
        connect(refresh_token_ref=f"file:{tmp_path}/absent")
    assert (refusal.value.field, refusal.value.rule) == ("refresh_token_ref", "secret-unavailable")
    assert not Connection.objects.exists()


@pytest.mark.one_database
def test_only_a_person_of_a_live_session_connects(connect: Any, root: Root) -> None:
    with pytest.raises(Refused):
        connect(by=factories.AGENT)
    with pytest.raises(ContactRefused):
        connect(by=Asker("operator", "bob"))
    roots.end(root_id=root.pk, by=OPERATOR)
    with pytest.raises(ContactRefused):
        connect()
    assert not Connection.objects.exists()


def test_both_are_verified_together_within_five_contacts(
    connect: Any, root: Root, provider: ScriptedProvider
) -> None:
    connect("read")
    with pytest.raises(NotFound):
        verify(root)
    connect("send")
    provider.spends = [Contact.REFRESH] * 2 + [Contact.USERINFO] * 2 + [Contact.PROFILE]
    done = verify(root)
    assert [(one.state, one.address, one.revision) for one in done] == [
        ("verified", "ada@house.example", 2)
    ] * 2
    grant = Consent.objects.get(purpose="connect")
    assert sum(grant.budgets.values_list("spent", flat=True)) == 5
    assert Goal.objects.get(kind="connect").closed_at is not None
    assert Job.objects.get(kind="connect").outcome == "done"


@pytest.mark.one_database
def test_a_sixth_contact_is_refused(connect: Any, root: Root, provider: ScriptedProvider) -> None:
    connect("readonly")
    provider.spends = [Contact.PROFILE, Contact.PROFILE]
    with pytest.raises(ContactRefused) as refusal:
        verify(root, "readonly")
    assert refusal.value.reason == "contacts_used_up"
    assert provider.contacts == [Contact.PROFILE]
    assert Connection.objects.get().state == "new"


@pytest.mark.one_database
def test_without_a_live_session_nothing_is_contacted(
    connect: Any, root: Root, provider: ScriptedProvider
) -> None:
    connect("readonly")
    roots.revoke(root_id=root.pk, by=OPERATOR)
    for session in (None, root):
        with pytest.raises(ContactRefused):
            verify(session, "readonly")
    assert provider.contacts == []


@pytest.mark.one_database
def test_what_the_provider_refuses_is_kept_as_its_reason(
    connect: Any, root: Root, provider: ScriptedProvider
) -> None:
    connect("readonly")
    verify(root, "readonly")
    provider.error = Blocked("scope_omitted", field="scope")
    with pytest.raises(Blocked):
        verify(root, "readonly")
    found = Connection.objects.get()
    assert (found.state, found.reason, found.revision) == ("needs_reconnect", "scope_omitted", 3)
    assert kinds_of_events()[-1] == "connection.unverified"
    job = Job.objects.filter(kind="connect").first()
    assert job is not None and (job.outcome, job.reason) == ("blocked", "scope_omitted")


@pytest.mark.one_database
def test_a_provider_that_nobody_reached_changes_nothing_that_was_verified(
    connect: Any, root: Root, provider: ScriptedProvider
) -> None:
    class Unreached(Exception):
        permanent = False

    connect("readonly")
    verify(root, "readonly")
    provider.error = Blocked("not_reached", field="")
    provider.error.__cause__ = Unreached()
    with pytest.raises(Blocked):
        verify(root, "readonly")
    found = Connection.objects.get()
    assert (found.state, found.reason, found.revision) == ("verified", "not_reached", 2)


def test_credentials_replaced_while_they_were_verified_stay_unverified(
    connect: Any, root: Root, provider: ScriptedProvider
) -> None:
    connect("readonly")
    provider.during = lambda: connect("readonly", client_id="client-2")
    with pytest.raises(ContactRefused) as refusal:
        verify(root, "readonly")
    assert refusal.value.reason == "connection_changed"
    assert Connection.objects.get().state == "new"


@pytest.mark.one_database
def test_a_session_that_ends_meanwhile_verifies_nothing(
    connect: Any, root: Root, provider: ScriptedProvider
) -> None:
    connect("readonly")
    provider.during = lambda: roots.end(root_id=root.pk, by=OPERATOR)
    with pytest.raises(ContactRefused):
        verify(root, "readonly")
    assert Connection.objects.get().state == "new"


@pytest.mark.one_database
def test_verified_again_with_the_same_answer_it_is_the_same_revision(
    connect: Any, root: Root
) -> None:
    connect("readonly")
    assert [verify(root, "readonly")[0].revision for _ in range(3)] == [2, 2, 2]


def test_replaced_credentials_void_what_rests_on_the_old_ones(
    connect: Any, root: Root, kind: GuardedKind
) -> None:
    connect("read")
    approval, intended = sessions.opened(root), sessions.intent(root)
    replaced = connect("read", client_id="client-2")
    assert (replaced.revision, replaced.state, replaced.observed) == (2, "new", [])
    assert Connection.objects.count() == 1
    approval.refresh_from_db()
    assert (approval.state, approval.drifted) == (Approval.State.SUPERSEDED, "connection")
    done = effects.dispatch(effect_id=intended.pk)
    assert (done.phase, done.reason, done.detail["field"]) == (
        "cancelled",
        "connection_changed",
        "connection",
    )
    assert kind.posts() == 0


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_revoked_connection_is_contacted_no_more(
    connect: Any, root: Root, kind: GuardedKind, when: str
) -> None:
    made = connect("read")
    approval, intended = sessions.opened(root), sessions.intent(root)
    before = kind.ledger.read_text()

    def revoke() -> None:
        connections.revoke(connection_id=made.pk, by=OPERATOR, reason="it leaked")

    if when == "before":
        revoke()
    else:
        kind.looking = revoke
    done = effects.dispatch(effect_id=intended.pk)
    assert (done.phase, done.detail["field"], kind.posts()) == ("cancelled", "connection", 0)
    if when == "before":
        assert kind.ledger.read_text() == before
    approval.refresh_from_db()
    assert approval.state == Approval.State.SUPERSEDED
    made.refresh_from_db()
    assert (made.state, made.revoked_by, made.revoked_reason) == (
        "revoked",
        "operator:ada",
        "it leaked",
    )
    assert "leaked" not in str(Event.objects.get(kind="connection.revoked").facts)
    assert connect("read").pk != made.pk


def test_an_approval_does_not_survive_a_connection_that_its_snapshot_went_through(
    connect: Any, root: Root, kind: GuardedKind
) -> None:
    made = connect("read")
    approval = sessions.opened(root)
    Connection.objects.filter(pk=made.pk).update(state="needs_reconnect")
    with pytest.raises(ContactRefused) as refusal:
        sessions.approve(approval, root)
    assert (refusal.value.reason, refusal.value.field) == ("connection_unavailable", "connection")
    assert not ContactBudget.objects.filter(consent__purpose="execute").exists()

"""Connecting an account on its page: by reference, verified in five contacts, revoked for good."""

from __future__ import annotations

from html import unescape

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse

from approvals.models import Connection
from tests.console.test_get_is_safe import state_of_the_house
from tests.mail.gmail.world import GmailWorld
from tests.servers.google import GoogleServer

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]

STATE = Connection.State


@pytest.fixture
def console(world: GmailWorld) -> Client:
    """The operator's browser."""
    client = Client()
    client.force_login(get_user_model().objects.get(username="ada"))
    return client


def account_page(client: Client, world: GmailWorld) -> str:
    """The account's page as HTML."""
    answer = client.get(reverse("admin:mail_account_change", args=[world.account.pk]))
    assert answer.status_code == 200
    return unescape(answer.content.decode())


def press(client: Client, world: GmailWorld, act: str, **fields: str) -> str:
    """Press a button of the account's page; the last that the console says then."""
    url = reverse(f"admin:mail_account_{act}", args=[world.account.pk])
    answered = client.post(url, fields)
    assert answered.status_code == 302
    return [str(message) for message in get_messages(answered.wsgi_request)][-1]


def typed(world: GmailWorld, use: str) -> dict[str, str]:
    """What a person types to connect an account with a credential that Google issued."""
    one = world.connections[use]
    names = ("client_id", "client_secret_ref", "refresh_token_ref")
    return {"use": use, **{name: getattr(one, name) for name in names}}


def test_a_pair_is_imported_and_verified_within_five_contacts(world: GmailWorld, console: Client):
    url = reverse("admin:mail_account_connect", args=[world.account.pk])
    for use in ("read", "send"):
        fields = typed(world, use)
        Connection.objects.filter(pk=world.connections[use].pk).update(state=STATE.NEW)
        answer = console.post(url, fields)
        assert answer.status_code == 302, answer.content
    assert not world.contacts()
    assert {one.state for one in Connection.objects.all()} == {STATE.NEW}
    said = press(console, world, "verify_connections", group="reply")
    assert said == f"Verified: read as {world.address} and send as {world.address}."
    assert sum(world.contacts().values()) == 5
    html = account_page(console, world)
    assert {one.state for one in Connection.objects.all()} == {STATE.VERIFIED}
    assert "not observed" not in html
    assert "https://www.googleapis.com/auth/gmail.send" in html


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("token.scope-extra", "scope_extra"),
        ("userinfo.unverified", "email_not_verified"),
        ("profile.other-mailbox", "mailbox_differs"),
        ("token.status-503", "http-503"),
    ],
)
def test_what_google_does_not_confirm_is_not_verified_and_says_why(
    world: GmailWorld, console: Client, google_server: GoogleServer, fault: str, reason: str
):
    google_server.fault(fault)
    said = press(console, world, "verify_connections", group="reply")
    assert said.endswith(f"(rule: {reason})")
    assert f"({reason})" in account_page(console, world)


@pytest.mark.parametrize("field", ["client_secret_ref", "refresh_token_ref"])
def test_a_secret_typed_where_its_reference_belongs_is_refused_and_not_sent_back(
    world: GmailWorld, console: Client, field: str
):
    before = state_of_the_house()
    url = reverse("admin:mail_account_connect", args=[world.account.pk])
    secret = "1//0gTheRefreshTokenItself"
    answer = console.post(url, {**typed(world, "read"), field: secret})
    html = unescape(answer.content.decode())
    assert answer.status_code == 200
    assert secret not in html
    assert f'id="id_{field}_error" role="alert"' in html
    assert state_of_the_house() == before


def test_the_form_to_connect_changes_nothing_while_it_is_looked_at(
    world: GmailWorld, console: Client
):
    url = reverse("admin:mail_account_connect", args=[world.account.pk])
    before = state_of_the_house()
    for use in ("read", "send", "readonly"):
        html = console.get(url, {"use": use}).content.decode()
        assert f'<option value="{use}" selected>' in html
    assert console.head(url).status_code == 200
    assert console.put(url).status_code == 405
    assert (state_of_the_house(), dict(world.contacts())) == (before, {})


def test_a_revoked_connection_is_gone_for_good(world: GmailWorld, console: Client):
    said = press(console, world, "revoke_connection", use="send", reason=" ")
    assert "say why" in said.lower()
    said = press(console, world, "revoke_connection", use="send", reason="A lost laptop.")
    assert said == "Revoked: nothing is asked through the send connection."
    assert Connection.objects.get(pk=world.connections["send"].pk).state == STATE.REVOKED
    assert "not connected" in account_page(console, world)


def test_a_lost_connection_asks_for_a_person(world: GmailWorld, console: Client):
    Connection.objects.filter(pk=world.connections["read"].pk).update(
        state=STATE.NEEDS_RECONNECT, reason="needs-reconnect"
    )
    html = unescape(console.get(reverse("admin:index")).content.decode())
    row = html.split('data-need="lost-connection"')[1].split("</li>")[0]
    assert f"Connect {world.account.name} again: its read connection is lost" in row
    assert f"{reverse('admin:mail_account_change', args=[world.account.pk])}#cs-connections" in row


def test_whoever_may_only_look_sees_connections_and_no_acts(world: GmailWorld):
    otto = get_user_model().objects.create_user("otto", is_staff=True)
    otto.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    onlooker = Client()
    onlooker.force_login(otto)
    html = account_page(onlooker, world)
    assert "Connections at Google" in html
    for act in ("connect", "verify_connections", "revoke_connection"):
        url = reverse(f"admin:mail_account_{act}", args=[world.account.pk])
        assert url not in html
        assert onlooker.post(url).status_code == 403
    connect = reverse("admin:mail_account_connect", args=[world.account.pk])
    assert onlooker.get(connect).status_code == 403


def test_whoever_may_change_accounts_but_no_connections_connects_nothing(world: GmailWorld):
    nina = get_user_model().objects.create_user("nina", is_staff=True)
    nina.user_permissions.set(
        Permission.objects.filter(codename__in=["view_account", "change_account"])
    )
    browser = Client()
    browser.force_login(nina)
    assert "Connections at Google" not in account_page(browser, world)
    connect = reverse("admin:mail_account_connect", args=[world.account.pk])
    assert browser.post(connect, typed(world, "read")).status_code == 403

"""Connecting an account to Google: verified within five contacts, or refused with the reason."""

from __future__ import annotations

import pytest

from approvals import registry
from approvals.exceptions import Blocked
from approvals.models import Connection
from approvals.services import connections
from guards.exceptions import InvalidInput
from guards.types import Subject
from mail.gmail import scopes
from tests.mail.gmail.world import ADDRESS, OPERATOR, GmailWorld, caps, last_grant, spent
from tests.servers.google import GoogleServer

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]


def account(world: GmailWorld) -> Subject:
    return Subject("mail.account", str(world.account.pk))


def bring(world: GmailWorld, use: str) -> Connection:
    """Import a credential through the service, as the console does."""
    fresh = world.connect_fields(use)
    return connections.import_connection(
        account=account(world), use=use, by=OPERATOR, root=world.root, **fresh
    )


def verify(world: GmailWorld, group: str = "reply") -> list[Connection]:
    return connections.verify(account=account(world), group=group, by=OPERATOR, root=world.root)


def test_a_pair_is_verified_in_five_contacts(world: GmailWorld):
    read, send = bring(world, "read"), bring(world, "send")
    assert {read.state, send.state} == {"new"}
    found = {one.use: one for one in verify(world)}
    assert {one.state for one in found.values()} == {"verified"}
    assert {one.address for one in found.values()} == {ADDRESS}
    assert {one.subject for one in found.values()} == {world.person.subject}
    assert found["read"].observed == sorted(scopes.READ)
    assert found["send"].observed == sorted(scopes.SEND)
    grant = last_grant("connect")
    assert caps(grant) == spent(grant) == {"refresh": 2, "userinfo": 2, "profile": 1}
    assert len(world.google.contacts) == 5
    assert world.send().phase == "verified"


def test_one_that_only_reads_is_verified_and_is_never_ready_for_replies(
    world: GmailWorld, google_server: GoogleServer
):
    for use in ("read", "send"):
        world.revoke(use)
    bring(world, "readonly")
    google_server.fault("token.scope-omitted")
    [found] = verify(world, "readonly")
    assert (found.state, found.address, found.observed) == ("verified", ADDRESS, [])
    assert len(world.google.contacts) == 2
    google_server.heal()
    world.account.smtp_host = "127.0.0.1"
    world.account.save()
    assert world.draft().hold.kind == "mail.smtp"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("token.scope-omitted", "scope_omitted"),
        ("token.scope-extra", "scope_extra"),
        ("token.scope-other-use", "scope_extra"),
        ("token.invalid-grant", "needs-reconnect"),
        ("userinfo.unverified", "email_not_verified"),
        ("userinfo.other-issuer", "issuer_foreign"),
        ("profile.other-mailbox", "mailbox_differs"),
        ("profile.mailbox-dots", "mailbox_differs"),
    ],
)
def test_what_does_not_hold_is_refused_and_stays_at_the_connection(
    world: GmailWorld, google_server: GoogleServer, fault: str, reason: str
):
    bring(world, "read"), bring(world, "send")
    google_server.fault(fault)
    with pytest.raises(Blocked) as blocked:
        verify(world)
    assert blocked.value.reason == reason
    states = set(Connection.objects.values_list("state", flat=True))
    assert "verified" not in states


def test_two_accounts_are_no_pair(world: GmailWorld):
    bring(world, "read"), bring(world, "send")
    world.issued["send"].person = world.google.add_person("somebody.else@gmail.test")
    with pytest.raises(Blocked) as blocked:
        verify(world)
    assert blocked.value.reason == "subjects_differ"


def test_a_pair_of_another_mailbox_than_the_account_sends_from_is_refused(world: GmailWorld):
    bring(world, "read"), bring(world, "send")
    world.account.from_address = "alias@gmail.test"
    world.account.save()
    with pytest.raises(Blocked) as blocked:
        verify(world)
    assert (blocked.value.reason, blocked.value.field) == ("mailbox_differs", "from")


def test_declared_scopes_are_the_exact_sets(world: GmailWorld):
    provider = registry.provider("mail.account")
    assert frozenset(provider.declared("read")) == scopes.READ
    assert frozenset(provider.declared("send")) == scopes.SEND
    assert frozenset(provider.declared("readonly")) == scopes.LEGACY_READONLY
    with pytest.raises(InvalidInput):
        provider.require_account(Subject("mail.account", "no number"))
    with pytest.raises(InvalidInput):
        provider.require_account(Subject("mail.account", "0"))


@pytest.mark.parametrize("use", ["read", "send"])
def test_a_credential_that_google_no_longer_takes_says_so_until_it_is_replaced(
    world: GmailWorld, use: str
):
    effect = world.approve()
    world.issued[use].revoked = True
    assert world.dispatch(effect).reason == "needs-reconnect"
    world.connections[use].refresh_from_db()
    assert world.connections[use].state == "needs_reconnect"

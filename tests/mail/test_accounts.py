"""Accounts: what is refused when they are entered, and what a change means."""

from __future__ import annotations

import pytest

from guards.exceptions import InvalidInput, NotFound
from guards.types import SYSTEM
from mail.models import Account
from mail.services import accounts
from teams.models import Event
from tests.mail.factories import OPERATOR, AccountFactory, IdentityFactory

pytestmark = pytest.mark.django_db


@pytest.mark.fault("sister-36")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("port", "993"),
        ("port", 10.5),
        ("port", 0),
        ("port", True),
        ("smtp_port", 70000),
        ("poll_interval", "3m"),
        ("protocol", "pop3"),
        ("provider", "yahoo"),
        ("host", ""),
        ("username", ""),
        ("from_address", "not an address"),
        ("no_such_field", 1),
        ("state", "ok"),
        ("secret_ref", "hunter2 is my password"),
    ],
)
def test_a_value_that_would_mean_something_else_is_refused_by_its_name(field, value):
    with pytest.raises(InvalidInput) as refused:
        AccountFactory(**{field: value})
    assert refused.value.field == field
    assert not Account.objects.exists()


@pytest.mark.fault("sister-20")
def test_signing_is_refused_where_mime_does_not_survive():
    with pytest.raises(InvalidInput) as refused:
        AccountFactory(sign_outbound=True, preserves_mime=False)
    assert refused.value.field == "sign_outbound"
    assert AccountFactory(sign_outbound=True).sign_outbound


@pytest.mark.parametrize("host", ["mail.example.org", "127.0.0.2", "bridge.localhost"])
def test_a_proton_bridge_is_on_a_literal_loopback_host(host):
    with pytest.raises(InvalidInput) as refused:
        AccountFactory(provider="proton-bridge", host=host)
    assert refused.value.field == "host"


def test_a_change_raises_the_revision_and_forgets_failures():
    account = AccountFactory()
    Account.objects.update(failures=4, last_error="x", state="failing")
    changed = accounts.update_account(account_id=account.pk, by=OPERATOR, port=993)
    assert (changed.port, changed.revision, changed.failures) == (993, 1, 0)
    event = Event.objects.get(kind="account.changed")
    assert event.facts["fields"] == ["port"]
    assert event.actor == "operator:olga"


def test_a_refused_change_changes_nothing():
    account = AccountFactory()
    with pytest.raises(InvalidInput):
        accounts.update_account(account_id=account.pk, by=OPERATOR, host="x.org", port="1")
    account.refresh_from_db()
    assert (account.host, account.revision) == ("127.0.0.1", 0)


def test_switching_off_and_on_is_one_event_each():
    account = AccountFactory()
    for _ in range(2):
        accounts.disable(account_id=account.pk, by=OPERATOR)
    assert Account.objects.get().state == "disabled"
    for _ in range(2):
        accounts.enable(account_id=account.pk, by=OPERATOR)
    assert Account.objects.get().state == "new"
    assert Event.objects.filter(kind="account.disabled").count() == 1
    assert Event.objects.filter(kind="account.enabled").count() == 1


def test_a_name_is_given_once():
    identity = IdentityFactory()
    AccountFactory(identity=identity, name="one")
    with pytest.raises(InvalidInput) as refused:
        AccountFactory(identity=identity, name="one")
    assert refused.value.field == "name"


def test_an_account_that_is_not_there_is_named():
    with pytest.raises(NotFound, match="4711"):
        accounts.update_account(account_id=4711, by=SYSTEM, port=1)


def test_a_trial_connection_says_what_is_missing(account, mail_server):
    accounts.update_account(account_id=account.pk, by=OPERATOR, sent_folder="Sent")
    found = {check.check: check for check in accounts.test_connection(account_id=account.pk)}
    assert found["login"].ok
    assert found["folder INBOX"].ok
    assert not found["folder Sent"].ok
    assert found["IDLE"].ok
    assert not found["CONDSTORE"].ok
    assert found["sending"].ok
    mail_server.passwords["agent@agents.test"] = "changed"
    (login,) = accounts.test_connection(account_id=account.pk)
    assert not login.ok
    assert "refused the login" in login.detail


def test_a_trial_connection_tries_the_way_out_too(account, mail_server):
    mail_server.add_user("relay", "relay-secret")
    accounts.update_account(account_id=account.pk, by=OPERATOR, smtp_username="relay")
    found = {check.check: check for check in accounts.test_connection(account_id=account.pk)}
    assert found["login"].ok
    assert not found["sending"].ok
    assert found["sending"].detail == "127.0.0.1:1587: login refused: 535"
    assert not mail_server.sent
    accounts.update_account(account_id=account.pk, by=OPERATOR, smtp_host="")
    checks = accounts.test_connection(account_id=account.pk)
    assert "sending" not in [check.check for check in checks]


def test_no_secret_shows_in_an_endpoint(account):
    from mail import endpoints

    assert "mailbox-secret" not in repr(endpoints.incoming(account))

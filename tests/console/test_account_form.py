"""Adding and changing an account in the console."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse

from guards import secrets
from guards.models import Identity
from mail.models import Account
from teams.models import Event

pytestmark = pytest.mark.one_database


@pytest.fixture
def form(db: None) -> dict[str, object]:
    ada = Identity.objects.create(handle="ada", name="Ada", email="ada@agents.example")
    return {
        "identity": ada.pk,
        "name": "ada-inbox",
        "provider": "generic",
        "poll_interval": "5m",
        "host": "imap.house.example",
        "port": 993,
        "username": "ada",
        "secret_ref": "env:ADA_PASSWORD",
        "folder": "INBOX",
        "smtp_host": "smtp.house.example",
        "smtp_port": 587,
        "preserves_mime": "on",
    }


def add(console: Client, form: dict[str, object]):
    return console.post(reverse("admin:mail_account_add"), form)


def test_a_good_form_makes_the_account_and_its_event(console: Client, form: dict[str, object]):
    answer = add(console, form)
    assert answer.status_code == 302, answer.context["adminform"].form.errors
    assert Account.objects.get(name="ada-inbox").secret_ref == "env:ADA_PASSWORD"
    assert Event.objects.filter(kind="account.added", actor="operator:olga").exists()


def test_a_typed_password_goes_into_a_file_and_not_into_the_database(
    console: Client, form: dict[str, object]
):
    answer = add(console, form | {"secret_ref": "", "password": "correct horse"})
    assert answer.status_code == 302, answer.context["adminform"].form.errors
    account = Account.objects.get(name="ada-inbox")
    assert "correct horse" not in account.secret_ref
    kept = [path for path in Path(settings.SECRETS_DIR).rglob("*") if path.is_file()]
    mine = [path for path in kept if "ada-inbox" in path.name]
    assert mine and stat.S_IMODE(mine[0].stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"secret_ref": ""}, "secret_ref"),
        ({"port": 0}, "port"),
        ({"sign_outbound": "on", "preserves_mime": ""}, "sign_outbound"),
        ({"provider": "proton-bridge"}, "host"),
    ],
)
def test_what_is_wrong_stands_at_its_field(
    console: Client, form: dict[str, object], change: dict[str, object], field: str
):
    answer = add(console, form | change)
    assert answer.status_code == 200
    assert field in answer.context["adminform"].form.errors
    assert not Account.objects.exists()


def test_a_change_raises_the_revision(console: Client, form: dict[str, object]):
    add(console, form)
    account = Account.objects.get()
    url = reverse("admin:mail_account_change", args=[account.pk])
    answer = console.post(url, form | {"host": "other.house.example"})
    assert answer.status_code == 302, answer.context["adminform"].form.errors
    changed = Account.objects.get()
    assert (changed.host, changed.revision) == ("other.house.example", account.revision + 1)


def test_a_gmail_account_needs_neither_server_nor_password_and_takes_none(
    console: Client, form: dict[str, object]
):
    gmail = form | {"protocol": "gmail", "host": "", "secret_ref": "", "username": "ada@gmail.test"}
    refused = add(console, gmail)
    assert "smtp_host" in refused.context["adminform"].form.errors
    refused = add(console, gmail | {"smtp_host": "", "password": "correct horse"})
    assert "secret_ref" in refused.context["adminform"].form.errors
    answer = add(console, gmail | {"smtp_host": ""})
    assert answer.status_code == 302, answer.context["adminform"].form.errors
    made = Account.objects.get()
    assert (made.protocol, made.provider, made.host) == ("gmail", "gmail", "gmail.googleapis.com")
    url = reverse("admin:mail_account_change", args=[made.pk])
    answer = console.post(url, gmail | {"smtp_host": "", "poll_interval": "1m", "protocol": "imap"})
    assert answer.status_code == 302, answer.context["adminform"].form.errors
    changed = Account.objects.get()
    assert (changed.protocol, changed.poll_interval, changed.port) == ("gmail", "1m", 443)


def test_an_account_with_a_password_needs_its_server(console: Client, form: dict[str, object]):
    answer = add(console, form | {"host": ""})
    assert "host" in answer.context["adminform"].form.errors
    answer = add(console, form | {"port": ""})
    assert "port" in answer.context["adminform"].form.errors


def test_an_account_is_switched_off_and_on(console: Client, form: dict[str, object]):
    add(console, form)
    account = Account.objects.get()
    console.post(reverse("admin:mail_account_disable", args=[account.pk]))
    assert Account.objects.get().state == "disabled"
    console.post(reverse("admin:mail_account_enable", args=[account.pk]))
    assert Account.objects.get().state == "new"


def test_no_account_can_be_named_into_the_password_of_another(
    console: Client, form: dict[str, object]
):
    typed = {"secret_ref": "", "password": "for reading", "smtp_password": "for sending"}
    add(console, form | typed | {"name": "ada"})
    add(console, form | {"secret_ref": "", "password": "another one", "name": "ada-smtp"})
    first, second = (Account.objects.get(name=name) for name in ("ada", "ada-smtp"))
    references = {first.secret_ref, first.smtp_secret_ref, second.secret_ref}
    assert len(references) == 3
    assert secrets.resolve(first.smtp_secret_ref).reveal() == "for sending"


@pytest.mark.parametrize("field", ["password", "smtp_password"])
def test_a_name_that_no_file_can_have_takes_no_typed_password(
    console: Client, form: dict[str, object], field: str
):
    answer = add(console, form | {"name": "Ada's inbox", field: "typed"})
    assert answer.status_code == 200
    assert answer.context["adminform"].form.errors
    assert not Account.objects.filter(name="Ada's inbox").exists()


@pytest.mark.parametrize("field", ["secret_ref", "smtp_secret_ref"])
def test_a_secret_typed_where_a_reference_belongs_is_not_sent_back(
    console: Client, form: dict[str, object], field: str
):
    raw = "ghp_abcdefghijklmnopqrst1234"
    answer = add(console, form | {field: raw})
    assert (answer.status_code, Account.objects.count()) == (200, 0)
    assert raw not in answer.content.decode()
    wrong_elsewhere = add(console, form | {field: "env:KEPT_NAME", "host": ""})
    assert "env:KEPT_NAME" in wrong_elsewhere.content.decode()


def test_a_passphrase_typed_where_its_reference_belongs_is_not_sent_back(
    console: Client, form: dict[str, object]
):
    raw = "ghp_abcdefghijklmnopqrst1234"
    fields = {"handle": "eve", "name": "Eve", "email": "eve@agents.example", "kind": "agent"}
    fields |= {"reply_policy": "approve", "recipient_binding": "required", "passphrase_ref": raw}
    answer = console.post(reverse("admin:guards_identity_add"), fields)
    assert (answer.status_code, Identity.objects.filter(handle="eve").exists()) == (200, False)
    assert raw not in answer.content.decode()

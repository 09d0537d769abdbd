"""Every front gives the same answer about the same message (invariant 10)."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from django.utils.html import escape

from guards.services import tokens
from guards.services.keys import pin_key
from mail import selectors, sentences
from mail.models import Message
from mail.services import polling
from tests.mail.factories import OPERATOR, make_contact, make_mail, make_signed

pytestmark = [pytest.mark.django_db, pytest.mark.invariant(10)]

USER = "agent@agents.test"
#: Sender and rights; each also signs where the second mail of the pair says so.
RIGHTS = {"alice@example.org": "rwx", "reader@example.org": "r--", "writer@example.org": "-w-"}


@pytest.fixture
def stored(account, mail_server, keys):
    """Signed and unsigned mail of every kind of contact, and of a stranger."""
    polling.poll(account_id=account.pk)
    for address, rwx in RIGHTS.items():
        contact = make_contact(account.identity, address, rwx)
        if address.startswith("alice"):
            pin_key(contact=contact, key=keys.alice.public, by=OPERATOR)
    for address in (*RIGHTS, "stranger@evil.test"):
        mail_server.deliver(USER, make_mail(sender=address))
    mail_server.deliver(USER, make_signed(keys.alice, "run the report\n"))
    mail_server.deliver(USER, make_signed(keys.alice, "run the report\n", break_body=True))
    mail_server.deliver(USER, make_mail(sender="a@x.test, b@x.test"))
    polling.poll(account_id=account.pk)
    return list(Message.objects.order_by("number"))


def by_api(message: Message) -> tuple[str, ...]:
    _, secret = tokens.mint(label=str(message.pk), scopes=["messages:read"], by=OPERATOR)
    client = Client(headers={"authorization": f"Bearer {secret}"})
    found = json.loads(client.get(f"/api/v1/messages/{message.pk}").content)
    return tuple(found[name] for name in ("trust", "trust_reason", "permission", "rule"))


def by_inbox(message: Message) -> tuple[str, ...]:
    out = StringIO()
    call_command("inbox", "--json", stdout=out)
    found = {one["id"]: one for one in json.loads(out.getvalue())["messages"]}
    return tuple(found[message.number][name] for name in ("trust", "reason", "permission", "rule"))


def by_explain(message: Message, directory: Path) -> tuple[str, ...]:
    file = directory / "message.eml"
    file.write_bytes(selectors.raw(message))
    out = StringIO()
    call_command("explain", "--json", str(file), "--identity", USER, stdout=out)
    found = json.loads(out.getvalue())
    trust = found["trust"]
    return trust["level"], trust["reason"], found["permission"], found["decision"]["rule"]


def test_the_same_message_has_one_verdict_in_api_inbox_and_explain(stored, tmp_path):
    answers = [by_api(message) for message in stored]
    assert answers == [by_inbox(message) for message in stored]
    assert answers == [by_explain(message, tmp_path) for message in stored]
    assert answers == [(m.trust_level, m.trust_reason, m.permission, m.rule) for m in stored]
    assert len(set(answers)) == len(stored)  # none of them says the same about everything


@pytest.mark.one_database
def test_the_console_shows_that_verdict_in_words(stored):
    console = Client()
    console.force_login(User.objects.create_superuser("olga", password="olga-pass-1"))
    for message in stored:
        html = console.get(reverse("admin:mail_message_change", args=[message.pk])).content.decode()
        said = {rule: escape(sentence) in html for rule, sentence in sentences.RULES.items()}
        assert [rule for rule, shown in said.items() if shown] == [message.rule]
        assert escape(sentences.trust_sentence(message.trust_reason)) in html

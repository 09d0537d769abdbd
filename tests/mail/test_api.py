"""`/api/v1` of mail: what a token sees, and what stays redacted."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from django.test import Client

from guards.services import tokens
from guards.types import SYSTEM, Subject
from mail.models import Message
from mail.schemas import REDACTED
from mail.services import messages, outbound, polling
from mail.types import Enclosure
from tests.mail.factories import OPERATOR, AccountFactory, make_contact, make_mail

pytestmark = pytest.mark.django_db

USER = "agent@agents.test"


def caller(identity: object = None, scopes: tuple[str, ...] = ("messages:read",)) -> Client:
    _, secret = tokens.mint(label="caller", scopes=list(scopes), identity=identity, by=OPERATOR)
    return Client(headers={"authorization": f"Bearer {secret}"})


def answer(client: Client, address: str, status: int = 200) -> Any:
    response = client.get(f"/api/v1/{address}")
    assert response.status_code == status, response.content
    return json.loads(response.content)


@pytest.fixture
def inbox(account, mail_server):
    """One mail of a contact with `r`, one of a stranger."""
    polling.poll(account_id=account.pk)
    make_contact(account.identity, "reader@example.org", "r--")
    mail_server.deliver(USER, make_mail(sender="reader@example.org", subject="open"))
    mail_server.deliver(USER, make_mail(sender="stranger@evil.test", subject="secret plan"))
    polling.poll(account_id=account.pk)
    return account


@pytest.mark.one_database
@pytest.mark.fault("sister-16")
def test_a_stranger_shows_his_address_and_hides_his_subject(inbox):
    found = answer(caller(), "messages")["items"]
    assert [(one["sender"], one["subject"], one["readable"]) for one in found] == [
        ("stranger@evil.test", REDACTED, False),
        ("reader@example.org", "open", True),
    ]


@pytest.mark.one_database
def test_a_body_needs_r_or_an_operators_release(inbox):
    stranger, reader = Message.objects.order_by("-pk")
    assert answer(caller(), f"messages/{reader.pk}")["untrusted_text"].strip() == "A line."
    hidden = answer(caller(), f"messages/{stranger.pk}")
    assert hidden["untrusted_text"] is None
    assert hidden["parts"] == []
    assert "secret plan" not in json.dumps(hidden)
    messages.reveal(message_id=stranger.pk, by=OPERATOR)
    assert answer(caller(), f"messages/{stranger.pk}")["untrusted_text"] is None
    messages.release(message_id=stranger.pk, by=OPERATOR)
    assert answer(caller(), f"messages/{stranger.pk}")["subject"] == "secret plan"


@pytest.mark.one_database
def test_a_token_of_one_identity_sees_that_ones_mail_only(inbox):
    other = AccountFactory(identity__handle="second", identity__email="second@agents.test")
    message = Message.objects.first()
    assert answer(caller(other.identity), "messages")["items"] == []
    refused = answer(caller(other.identity), f"messages/{message.pk}", 404)
    assert refused["code"] == "not-found"
    assert len(answer(caller(inbox.identity), "messages")["items"]) == 2


@pytest.mark.one_database
def test_a_projects_token_without_an_identity_sees_nobodys_mail(inbox):
    _, secret = tokens.mint(label="ci", scopes=["messages:read"], project="apollo", by=OPERATOR)
    client = Client(headers={"authorization": f"Bearer {secret}"})
    assert answer(client, "messages")["items"] == []
    assert answer(client, f"messages/{Message.objects.first().pk}", 404)["code"] == "not-found"


def test_lists_are_filtered_by_trust_rule_and_account(inbox):
    assert len(answer(caller(), "messages?rule=no-permission")["items"]) == 1
    assert len(answer(caller(), "messages?trust=verified")["items"]) == 0
    assert len(answer(caller(), f"messages?account={inbox.name}")["items"]) == 2
    assert answer(caller(), "messages?trust=certain", 422)["field"]


@pytest.mark.fault("sister-11")
def test_every_page_leads_to_the_next_and_a_foreign_cursor_is_an_error(inbox):
    first = answer(caller(), "messages?limit=1")
    second = answer(caller(), f"messages?limit=1&cursor={first['next_cursor']}")
    assert first["items"][0]["id"] != second["items"][0]["id"]
    assert second["next_cursor"] is None
    assert answer(caller(), "messages?cursor=page-99", 422)["field"] == "cursor"


@pytest.mark.one_database
def test_outgoing_mail_shows_what_became_of_it(inbox):
    draft = outbound.draft_reply(
        message_id=Message.objects.get(subject="open").pk,
        text="Yes.\n",
        origin=Subject("pipelines.pipeline", str(uuid.uuid4())),
        executes=True,
        files=[Enclosure("report.pdf", "application/pdf", b"%PDF")],
    )
    outbound.submit(outbound_id=draft.pk, asker=SYSTEM)
    (shown,) = answer(caller(), "outbound")["items"]
    assert (shown["status"], shown["reason"], shown["to"]) == (
        "accepted",
        "smtp-250",
        ["reader@example.org"],
    )
    assert [(file["name"], file["size"]) for file in shown["files"]] == [("report.pdf", 4)]
    assert answer(caller(), "outbound?status=unknown")["items"] == []


@pytest.mark.one_database
@pytest.mark.parametrize(("rights", "subject"), [("--x", REDACTED), ("r-x", "Re: secret plan")])
def test_a_reply_does_not_tell_the_subject_of_mail_that_may_not_be_read(
    account, mail_server, rights, subject
):
    polling.poll(account_id=account.pk)
    make_contact(account.identity, "worker@example.org", rights)
    mail_server.deliver(USER, make_mail(sender="worker@example.org", subject="secret plan"))
    polling.poll(account_id=account.pk)
    outbound.draft_reply(
        message_id=Message.objects.get().pk,
        text="Done.\n",
        origin=Subject("pipelines.pipeline", str(uuid.uuid4())),
        executes=True,
        files=[Enclosure("secret plan.pdf", "application/pdf", b"%PDF")],
    )
    (shown,) = answer(caller(), "outbound")["items"]
    assert shown["subject"] == subject
    assert (shown["files"][0]["name"] == REDACTED) is (subject == REDACTED)


@pytest.mark.one_database
def test_without_the_scope_nothing_is_shown(inbox):
    refused = answer(caller(scopes=("decisions:read",)), "messages", 403)
    assert refused["rule"]

"""A separately consented exact reply of least privilege: what is read, leaves, and proves it."""

from __future__ import annotations

import json
import logging
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Iterator

import pytest
from django.apps import apps

from approvals import sealing
from approvals.models import Effect
from tests.mail.gmail.world import ADDRESS, SENDER, GmailWorld, caps, last_grant, spent

pytestmark = pytest.mark.django_db


def test_a_separately_consented_exact_reply_is_posted_once_and_verified_in_sent(world: GmailWorld):
    effect = world.send()
    assert (effect.phase, effect.reason) == (Effect.Phase.VERIFIED, "sent-copy-matches")
    assert world.google.posts == 1
    assert world.contacts() == {
        "token read": 2,
        "token send": 1,
        "userinfo read": 2,
        "userinfo send": 1,
        "profile read": 2,
        "list read": 1,
        "thread read": 2,
        "send send": 1,
        "message read": 1,
    }
    world.outbound.refresh_from_db()
    assert world.outbound.status == "verified"


@pytest.mark.one_database
def test_what_is_posted_is_what_was_approved(world: GmailWorld):
    approval = world.open()
    world.dispatch(world.approve(approval))
    [posted] = [one.body for one in world.google.contacts if one.endpoint == "send"]
    assert posted == sealing.unseal(approval.payload)
    resource = json.loads(posted)
    assert list(resource) == ["raw", "threadId"]
    assert resource["threadId"] == world.stored.thread_id
    assert world.sent()[0].endswith(urlsafe_b64decode(resource["raw"]))


@pytest.mark.one_database
def test_the_preview_has_every_field(world: GmailWorld):
    letter = world.letter(Reply_To="Collector <collect@evil.example>")
    approval = world.open(world.draft("They are fine. \r\n\n", letter))
    shown = json.loads(sealing.unseal(approval.preview))
    assert shown["mailbox"] == shown["from"] == ADDRESS
    assert shown["to"] == [SENDER]
    assert shown["cc"] == shown["bcc"] == shown["attachments"] == []
    assert shown["reply_to"] == ["Collector <collect@evil.example>"]
    assert shown["subject"] == "Re: Quarterly figures"
    assert shown["in_reply_to"] == shown["references"] == [letter.message_id]
    assert shown["text"].startswith("They are fine. \n")
    assert shown["outcome"] == "Verified in sender's Sent mailbox"
    assert shown["source"]["gmail"]["thread_id"] == world.stored.thread_id
    assert shown["source"]["gmail"]["revision"] == str(world.stored.history_id)
    assert shown["source"]["observed_at"]
    assert shown["source"]["text"] == "How are they?\n"


@pytest.mark.one_database
def test_a_preview_costs_five_contacts_and_sends_none(world: GmailWorld):
    world.open()
    grant = last_grant("preview")
    assert caps(grant) == {"refresh": 1, "userinfo": 1, "profile": 1, "read": 2}
    assert spent(grant) == {"refresh": 1, "userinfo": 1, "profile": 1, "read": 2}
    assert len(world.google.contacts) == 5
    assert world.google.posts == 0
    assert all("send" not in name for name in world.contacts())


@pytest.mark.one_database
def test_an_execution_costs_at_most_nine_contacts(world: GmailWorld):
    effect = world.send()
    assert sum(caps(effect.consent).values()) == 9
    assert spent(effect.consent) == {
        "refresh": 2,
        "userinfo": 2,
        "profile": 1,
        "read": 1,
        "post": 1,
        "get": 1,
    }


@pytest.mark.one_database
def test_operator_runtime_privacy_what_is_kept_in_the_clear_names_nobody(
    world: GmailWorld, caplog: pytest.LogCaptureFixture
):
    """Text, addresses, tokens and Gmail's ids are encrypted, or stay with our own mail."""
    caplog.set_level(logging.DEBUG)
    effect = world.send()
    [sent] = world.person.mailbox.sent()
    private = {
        "the text": "They are fine",
        "its base64": b64encode(b"They are fine.").decode()[:16],
        "the recipient": SENDER,
        "the sent message": sent.id,
        "the thread": sent.thread_id,
        "a token": "ya29.",
        "a secret": world.issued["send"].credential.refresh_token.reveal(),
        "the subject": "Quarterly figures",
    }
    kept = "\n".join(_rows("approvals", "teams", "django_q"))
    assert str(effect.pk) in kept
    for what, text in private.items():
        assert text not in kept, what
        assert text not in caplog.text, what
    told = json.dumps([effect.detail, effect.authority, effect.reason])
    assert ADDRESS not in told
    assert world.person.subject not in told


def _rows(*labels: str) -> Iterator[str]:
    """Every column of every row of these apps."""
    for label in labels:
        for model in apps.get_app_config(label).get_models():
            for row in model._default_manager.all().values():
                yield str(row)

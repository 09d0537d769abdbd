"""The copy in Sent: filed once where the server does not, read back where it does."""

from __future__ import annotations

import uuid

import pytest
from django.utils import timezone

from guards.types import SYSTEM, Subject
from mail import readback
from mail.models import Message
from mail.services import accounts, filing, outbound, polling
from tests.mail.factories import OPERATOR, make_mail

pytestmark = pytest.mark.django_db

USER = "agent@agents.test"


@pytest.fixture
def sent(account, mail_server, monkeypatch):
    """Send a reply from an account with the given Sent settings."""
    monkeypatch.setattr(readback, "PAUSE_SECONDS", 0.0)
    polling.poll(account_id=account.pk)
    mail_server.deliver(USER, make_mail())
    polling.poll(account_id=account.pk)
    mail_server.folder(USER, "Sent")

    def send(**settings):
        accounts.update_account(account_id=account.pk, by=OPERATOR, **settings)
        draft = outbound.draft_reply(
            message_id=Message.objects.get().pk,
            text="The answer.\n",
            origin=Subject("pipelines.pipeline", str(uuid.uuid4())),
            executes=True,
        )
        return outbound.submit(outbound_id=draft.pk, asker=SYSTEM)

    return send


@pytest.mark.fault("send-12")
def test_the_filed_copy_is_exactly_what_was_accepted_and_is_filed_once(sent, mail_server):
    done = sent(sent_folder="Sent")
    assert filing.file_sent(outbound_id=done.pk)
    assert not filing.file_sent(outbound_id=done.pk)
    (copy,) = mail_server.folder(USER, "Sent").messages.values()
    assert copy.raw == mail_server.sent[0].payload
    assert b"\r\nMessage-ID: <" in copy.raw and b"\r\nDate: " in copy.raw
    assert done.status == "accepted"


@pytest.mark.one_database
def test_nothing_is_filed_where_the_server_does_it(sent, mail_server):
    done = sent(sent_folder="Sent", server_files_sent=True)
    assert done.status == "accepted"
    assert not filing.file_sent(outbound_id=done.pk)
    assert not mail_server.folder(USER, "Sent").messages


@pytest.mark.one_database
def test_a_copy_that_the_server_filed_makes_it_verified(sent, mail_server):
    folder = mail_server.folder(USER, "Sent")

    class Filing(list):
        def append(self, mail):
            super().append(mail)
            folder.add(b"Received: by us\r\n" + mail.payload, timezone.now())

    mail_server.sent = Filing()
    done = sent(sent_folder="Sent", server_files_sent=True)
    assert (done.status, done.effect.phase) == ("verified", "verified")


@pytest.mark.one_database
@pytest.mark.invariant(20)
@pytest.mark.parametrize("found", ["two copies", "another message", "none"])
def test_a_look_that_proves_nothing_moves_nothing_and_sends_nothing(sent, mail_server, found):
    """The test above is its control: exactly one strict match does move it."""
    folder = mail_server.folder(USER, "Sent")

    class Filing(list):
        def append(self, mail):
            super().append(mail)
            changed = mail.payload.replace(b"The answer", b"An answer")
            copies = {"two copies": [mail.payload] * 2, "another message": [changed], "none": []}
            for copy in copies[found]:
                folder.add(copy, timezone.now())

    mail_server.sent = Filing()
    done = sent(sent_folder="Sent", server_files_sent=True)
    assert (done.status, done.effect.phase) == ("accepted", "accepted")
    assert mail_server.submissions == 1


SENT = make_mail(message_id="x@y")


@pytest.mark.one_database
@pytest.mark.invariant(20)
@pytest.mark.parametrize(
    ("copy", "same"),
    [
        (SENT, True),
        (b"Received: from here\r\n\tby there\r\n" + SENT, True),
        (SENT.replace(b"\r\n", b"\n"), True),
        (SENT.replace(b"A line", b"A lime"), False),
        (SENT.replace(b"alice@", b"alicia@"), False),
        (SENT.replace(b"<x@y>", b"<z@y>"), False),
        (b"Bcc: e@x\r\nTo: two@x\r\n" + SENT, False),
        (b"", False),
    ],
)
def test_only_the_same_body_and_the_same_fields_are_the_same_message(copy, same):
    assert readback.is_same(copy, SENT) is same

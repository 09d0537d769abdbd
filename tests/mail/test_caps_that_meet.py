"""Answers that several workers write at the same moment, on a database they really share."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

import pytest

from guards.types import Asker, Subject
from mail.exceptions import ReplyRefused
from mail.models import Message, Outbound
from mail.services import drafting, outbound, polling
from mail.signals import outbound_changed
from tests.databases import exit_of, forked, shared
from tests.mail.factories import make_contact, make_mail

pytestmark = pytest.mark.django_db(transaction=True)

USER = "agent@agents.test"
WORKERS = 4
#: The exit code of a worker whose draft was refused.
REFUSED = 3


@pytest.mark.invariant(22)
def test_of_answers_that_meet_one_sender_gets_one_a_day(tmp_path: Path, account, mail_server):
    polling.poll(account_id=account.pk)
    for number in range(WORKERS):
        mail_server.deliver(USER, make_mail(subject=str(number)))
    polling.poll(account_id=account.pk)
    messages = list(Message.objects.values_list("pk", flat=True))
    with shared(tmp_path):
        workers = [forked(lambda pk=pk: answer(pk, tmp_path / "gate")) for pk in messages]
        (tmp_path / "gate").touch()
        assert [exit_of(worker) for worker in workers] == [0] * WORKERS
        assert Outbound.objects.count() == 1


def answer(message_id: int, gate: Path) -> None:
    outbound_changed.connect(hesitate)
    Message.objects.get(pk=message_id)  # connected before the others start
    while not gate.exists():
        time.sleep(0.001)
    origin = Subject("pipelines.pipeline", str(uuid.uuid4()))
    try:
        outbound.draft_reply(message_id=message_id, text="No.\n", origin=origin, executes=False)
    except ReplyRefused as refused:
        assert refused.rule == "rate-limit"


@pytest.mark.invariant(22)
def test_of_drafts_that_meet_only_so_many_wait_as_one_agent_may_have(
    tmp_path: Path, account, mail_server, settings
):
    settings.OPEN_DRAFTS_PER_AGENT = 2
    make_contact(account.identity, "alice@example.org", "rw-")
    polling.poll(account_id=account.pk)
    for number in range(WORKERS):
        mail_server.deliver(USER, make_mail(subject=str(number)))
    polling.poll(account_id=account.pk)
    messages = list(Message.objects.values_list("pk", flat=True))
    with shared(tmp_path):
        workers = [forked(lambda pk=pk: draft(pk, tmp_path / "gate")) for pk in messages]
        (tmp_path / "gate").touch()
        refused = [exit_of(worker) for worker in workers]
        assert sorted(refused) == [0, 0, REFUSED, REFUSED]
        assert Outbound.objects.filter(status="held").count() == Outbound.objects.count() == 2


def draft(message_id: int, gate: Path) -> None:
    outbound_changed.connect(hesitate)
    message = Message.objects.get(pk=message_id)
    while not gate.exists():
        time.sleep(0.001)
    origin, asker = Subject("guards.call", str(uuid.uuid4())), Asker("identity", "ada")
    try:
        drafting.draft_reply(message=message, text="Yes.", origin=origin, asker=asker)
    except ReplyRefused as refused:
        assert refused.rule == "open-drafts"
        os._exit(REFUSED)


def hesitate(**_: object) -> None:
    """Between the look at the caps and the commit: long enough for everybody to look."""
    time.sleep(0.5)

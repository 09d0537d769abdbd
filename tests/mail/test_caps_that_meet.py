"""Answers that several workers write at the same moment, on a database they really share."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

import pytest

from guards.types import Subject
from mail.exceptions import ReplyRefused
from mail.models import Message, Outbound
from mail.services import outbound, polling
from mail.signals import outbound_changed
from tests.databases import exit_of, forked, shared
from tests.mail.factories import make_mail

pytestmark = pytest.mark.django_db(transaction=True)

USER = "agent@agents.test"
WORKERS = 4


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


def hesitate(**_: object) -> None:
    """Between the look at the caps and the commit: long enough for everybody to look."""
    time.sleep(0.5)

"""Answers that several workers write at the same moment, on a database they really share."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from guards.types import Asker, Subject
from mail.exceptions import ReplyRefused
from mail.gateways.memory import MemoryServer
from mail.models import Account, Message, Outbound
from mail.services import drafting, outbound, polling
from mail.signals import outbound_changed
from tests.databases import exit_of, forked, shared
from tests.mail.factories import make_contact, make_mail

pytestmark = pytest.mark.django_db(transaction=True)

USER = "agent@agents.test"
WORKERS = 4
#: The exit code of a worker whose draft was refused.
REFUSED = 3


def several(account: Account, mail_server: MemoryServer) -> list[int]:
    """One message for each worker, by one sender."""
    polling.poll(account_id=account.pk)
    for number in range(WORKERS):
        mail_server.deliver(USER, make_mail(subject=str(number)))
    polling.poll(account_id=account.pk)
    return list(Message.objects.values_list("pk", flat=True))


def meet(act: Callable[[int, Path], object], messages: list[int], gate: Path) -> list[int]:
    """Each in a process of its own, all through one gate at once; how they ended."""
    workers = [forked(lambda pk=pk: act(pk, gate)) for pk in messages]
    gate.touch()
    return [exit_of(worker) for worker in workers]


@pytest.mark.invariant(22)
def test_of_answers_that_meet_one_sender_gets_one_a_day(tmp_path: Path, account, mail_server):
    messages = several(account, mail_server)
    with shared(tmp_path):
        assert meet(answer, messages, tmp_path / "gate") == [0] * WORKERS
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
    messages = several(account, mail_server)
    with shared(tmp_path):
        refused = meet(draft, messages, tmp_path / "gate")
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
    time.sleep(0.25)

"""Answers by mail where no notice told of a draft, and the control of those where one did."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest

from approvals import registry
from approvals.services import holds
from approvals.types import Request
from guards.models import Identity
from guards.types import SYSTEM, Asker, Subject
from mail.adapters import SmtpKind
from mail.gateways.base import SendOutcome, SubmissionResult
from mail.gateways.memory import MemoryServer
from mail.models import Account, MailedAnswer, Message
from mail.services import mailed_answers, notices, outbound, polling
from tests.approvals.kinds import GateKind
from tests.keys import Key
from tests.mail.factories import OPERATOR, make_mail, make_signed
from tests.mail.owner import (
    OWNER,
    USER,
    House,
    digest_of,
    nothing_left,
)

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]


@pytest.fixture
def house(account: Account, mail_server: MemoryServer, owner_key: Key) -> House:
    return House(account, mail_server)


def test_a_tool_call_is_allowed_by_mail_too(house: House, owner_key: Key, settings: Any) -> None:
    gate = GateKind()
    registry.register_permission(gate)
    try:
        wish = Request(gate.name, Subject("tests.gate", "g-1"), Asker("identity", "agent"))
        hold = holds.hold(request=wish, reason="question")
        notice = notices.notify()
        assert notice is not None
        item = notice.items.get()
        answer = house.say(owner_key, f"approve {digest_of(item)}")
        assert answer.reason == "done"
        hold.refresh_from_db()
        assert hold.state == "allowed"
        assert item.approval.expires_at - item.approval.created_at == timedelta(hours=24)
    finally:
        registry.forget_kind(gate.name)


def test_the_helpers_of_this_page_see_a_reply_that_leaves(house: House) -> None:
    """The control: without a hold the same draft leaves, and is seen to."""
    Identity.objects.update(reply_policy="auto")
    house.server.deliver(USER, make_mail())
    polling.poll(account_id=house.account.pk)
    draft = outbound.draft_reply(
        message_id=Message.objects.latest("pk").pk,
        text="x",
        origin=Subject("pipelines.pipeline", str(uuid.uuid4())),
        executes=True,
    )
    outbound.submit(outbound_id=draft.pk, asker=SYSTEM)
    assert not nothing_left(house)


def test_a_digest_of_the_console_is_none_that_was_shown_by_mail(
    house: House, owner_key: Key
) -> None:
    waiting = house.held()
    approval = holds.open_for_review(hold_id=waiting.hold_id, by=OPERATOR)
    answer = house.say(owner_key, f"approve {approval.digest}")
    assert (answer.state, answer.reason) == ("refused", "unknown-digest")
    assert nothing_left(house)


def test_a_kind_for_the_console_alone_refuses_by_name(
    house: House, owner_key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SmtpKind, "via", frozenset({"policy", "console"}))
    waiting = house.held()
    approval = holds.open_for_review(hold_id=waiting.hold_id, by=OPERATOR)
    answer = house.say(owner_key, f"approve {approval.digest}")
    assert (answer.state, answer.reason) == ("refused", "answer-elsewhere")
    assert "Mail" in answer.detail
    assert nothing_left(house)


def test_a_notice_that_never_left_gives_no_digest_to_answer(house: House, owner_key: Key) -> None:
    house.server.next_result = SubmissionResult(SendOutcome.FAILED, "not-connected")
    item = house.told()
    answer = house.say(owner_key, f"approve {digest_of(item)}")
    assert (answer.state, answer.reason) == ("refused", "unknown-digest")


def test_old_mail_of_a_new_account_answers_nothing(
    account: Account, mail_server: MemoryServer, owner_key: Key
) -> None:
    mail_server.deliver(USER, make_signed(owner_key, f"approve {'ab' * 32}", sender=OWNER))
    polling.poll(account_id=account.pk)
    mailed_answers.settle_due()
    answer = MailedAnswer.objects.get()
    assert (answer.state, answer.reason) == ("refused", "first-pass")

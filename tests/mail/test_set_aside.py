"""Held mail that an operator has seen may stay as it is, and then asks for nobody any more."""

from __future__ import annotations

import pytest

from config import needs
from guards.exceptions import Refused
from guards.types import SYSTEM, Asker
from mail.models import Message
from mail.services import messages, polling
from teams.models import Event
from tests.mail.factories import OPERATOR, make_mail

pytestmark = pytest.mark.django_db

USER = "agent@agents.test"


@pytest.fixture
def held(account, mail_server) -> list[Message]:
    """Two messages of one stranger and one of another, all held."""
    polling.poll(account_id=account.pk)
    for sender in ("spam@evil.test", "spam@evil.test", "other@else.test"):
        mail_server.deliver(USER, make_mail(sender=sender))
    polling.poll(account_id=account.pk)
    assert needs.held_mail().count() == 3
    return list(Message.objects.order_by("pk"))


def test_one_message_is_left_as_it_is_and_nothing_else_about_it_changes(held):
    before = Message.objects.values().get(pk=held[0].pk)

    assert messages.set_aside(message_id=held[0].pk, by=OPERATOR) == 1

    after = Message.objects.values().get(pk=held[0].pk)
    assert {name for name in before if before[name] != after[name]} == {"set_aside_at"}
    assert set(needs.held_mail()) == {held[1], held[2]}
    assert Event.objects.get(kind="mail.set-aside").facts["messages"] == 1


def test_all_that_is_held_of_one_sender_goes_with_one_word(held):
    assert messages.set_aside(message_id=held[0].pk, whole_sender=True, by=OPERATOR) == 2
    assert list(needs.held_mail()) == [held[2]]


def test_a_second_click_says_nothing_again(held):
    messages.set_aside(message_id=held[0].pk, by=OPERATOR)
    assert messages.set_aside(message_id=held[0].pk, by=OPERATOR) == 0
    assert Event.objects.filter(kind="mail.set-aside").count() == 1


@pytest.mark.parametrize("by", [SYSTEM, Asker("token", "cs_1"), Asker("identity", "agent")])
def test_nobody_but_an_operator_leaves_it(held, by):
    with pytest.raises(Refused):
        messages.set_aside(message_id=held[0].pk, by=by)
    assert needs.held_mail().count() == 3

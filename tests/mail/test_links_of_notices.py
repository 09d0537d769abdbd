"""Invariant 21: looking at a link in a notice changes nothing, whoever looks, and however."""

from __future__ import annotations

from itertools import product
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User
from django.test import Client

from mail.gateways.memory import MemoryServer
from mail.models import Account, MailedAnswer, OwnerNotice
from mail.services import mailed_answers, notices
from tests.console.test_get_is_safe import state_of_the_house
from tests.keys import Key
from tests.mail.owner import OWNER, House, age_notices, digest_of, links, opened, read

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]


@pytest.fixture
def house(account: Account, mail_server: MemoryServer, owner_key: Key) -> House:
    return House(account, mail_server)


@pytest.fixture
def told(house: House, owner_key: Key, settings: object) -> list[str]:
    """The links of a notice of drafts, of one about a refused answer, and of a bare one."""
    settings.ALLOWED_HOSTS = ["countersign.example"]  # type: ignore[attr-defined]
    settings.BASE_URL = "https://countersign.example"  # type: ignore[attr-defined]
    item = house.told()
    house.say_unsigned(f"approve {digest_of(item)}")
    settings.OWNER_NOTICES = "bare"  # type: ignore[attr-defined]
    age_notices(minutes=11)
    house.held(sender="bob@example.org")
    notices.notify()
    assert OwnerNotice.objects.count() == 3
    *encrypted, bare = house.sent_to(OWNER)
    texts = [opened(owner_key, raw).get_content() for raw in encrypted]
    return [link for text in (*texts, read(bare).get_content()) for link in links(text)]


def operator() -> Client:
    user = User.objects.create_superuser("olga", "olga@example.org", "x")
    client = Client(HTTP_HOST="countersign.example")
    client.force_login(user)
    return client


@pytest.mark.invariant(21)
def test_looking_at_every_link_of_every_notice_changes_nothing(
    told: list[str], subtests: pytest.Subtests
) -> None:
    clients = {"nobody": Client(HTTP_HOST="countersign.example"), "operator": operator()}
    prefetching = {"HTTP_SEC_PURPOSE": "prefetch", "HTTP_PURPOSE": "prefetch"}
    assert len(told) >= 3
    before = state_of_the_house()
    for who, method, hints in product(clients, ("get", "head"), ({}, prefetching)):
        with subtests.test(who=who, method=method, hints=hints):
            for link in told:
                path = urlsplit(link)
                assert path.netloc == "countersign.example"
                assert not path.query
                answer = getattr(clients[who], method)(path.path, **hints)
                assert answer.status_code in (200, 302), link
            assert state_of_the_house() == before


@pytest.mark.invariant(21)
def test_a_post_to_a_link_of_a_notice_acts_on_nothing_either(told: list[str]) -> None:
    client = operator()
    before = state_of_the_house()
    for link in told:
        client.post(urlsplit(link).path, {"answer": "approve"})
    assert state_of_the_house() == before


def test_the_page_of_a_mail_shows_what_its_order_did(
    house: House, owner_key: Key, settings: object
) -> None:
    settings.ALLOWED_HOSTS = ["countersign.example"]  # type: ignore[attr-defined]
    item = house.told()
    answer = house.say(owner_key, f"approve {digest_of(item)}")
    refused = house.say_unsigned(f"approve {digest_of(item)}")
    client = operator()
    done_page = client.get(f"/admin/mail/message/{answer.message_id}/change/")
    page = client.get(f"/admin/mail/message/{refused.message_id}/change/")
    assert "It was carried out." in done_page.content.decode()
    assert "We saw the signature" in done_page.content.decode()
    assert "A yes needs the owner" in page.content.decode()
    hold = client.get(f"/admin/approvals/hold/{item.hold_id}/change/")
    assert "Told to the owner by mail" in hold.content.decode()
    outbound = client.get(f"/admin/mail/outbound/{item.notice.outbound_id}/change/")
    assert "lies in the approval" in outbound.content.decode()
    assert MailedAnswer.objects.count() == 2
    assert mailed_answers.settle_due() == 0

"""The synthetic Google itself: every fault can be set, happens as often as told, and is counted."""

from __future__ import annotations

import pytest

from mail.gateways.google.base import GoogleError, SendKind, StatusRefused
from tests.mail.factories import make_mail
from tests.mail.google import ADDRESS, Google, over_http, resource
from tests.servers.google_faults import ANYWHERE, OF_THEIR_OWN

pytestmark = pytest.mark.one_database

OWN = [f"{endpoint}.{name}" for endpoint, faults in OF_THEIR_OWN.items() for name in faults]


@pytest.fixture
def google(google_server) -> Google:
    """One person with a thread of two, the second of which lies in Sent."""
    made = over_http(google_server)
    first = made.person.mailbox.add(make_mail())
    ours = make_mail(sender=ADDRESS, message_id="ours@countersign.test")
    made.person.mailbox.add(ours, thread_id=first.id, labels=("SENT",))
    for issued in (made.read, made.send):
        made.tokens[issued.name] = made.token(issued)
    made.world.contacts.clear()
    return made


def ask(google: Google, endpoint: str):
    """One request to that endpoint."""
    first = next(iter(google.person.mailbox.messages.values()))
    reply = make_mail(
        sender=ADDRESS, In_Reply_To="<a@example.org>", References="<a@example.org>", text="Yes.\n"
    )
    calls = {
        "userinfo": ("userinfo", {}),
        "profile": ("profile", {}),
        "thread": ("thread", {"thread_id": first.thread_id}),
        "message": ("message_raw", {"message_id": first.id}),
        "send": ("send", {"request_json": resource(reply, first.thread_id)}),
        "list": ("list_sent", {"rfc822_message_id": "ours@countersign.test"}),
        "history": ("history", {"label": "INBOX", "start": 1000}),
    }
    if endpoint == "token":
        return google.client.refresh(grant=google.grant, credential=google.read.credential)
    method, arguments = calls[endpoint]
    return google.ask(method, google.send if endpoint == "send" else google.read, **arguments)


@pytest.mark.parametrize("fault", OWN)
def test_every_fault_of_an_endpoint_is_an_answer_of_google_and_is_counted(google, fault):
    endpoint = fault.partition(".")[0]
    google.server.fault(fault, times=1)
    try:
        told = ask(google, endpoint)
    except GoogleError as error:
        assert error.reason != "connection-lost", "the stand-in broke over its own fault"
    else:
        assert getattr(told, "kind", None) is not SendKind.LOST
    assert google.world.count(endpoint) == 1
    assert google.server.happening(endpoint, "") == ""


def test_a_fault_happens_as_often_as_it_was_told_and_to_whom(google):
    google.server.fault("userinfo.status-503", times=2, credential=google.send.name)
    assert google.ask("userinfo", google.read).email == ADDRESS
    for _ in range(2):
        with pytest.raises(StatusRefused):
            google.ask("userinfo", google.send)
    assert google.ask("userinfo", google.send).email == ADDRESS
    assert google.world.count("userinfo", google.send.name) == 3
    assert google.world.count("userinfo", google.read.name) == 1


@pytest.mark.parametrize("name", ["", "send", "send.", "send.nothing-like-it", "nowhere.slow"])
def test_a_fault_that_there_is_not_is_no_fault_that_never_happens(google_server, name):
    with pytest.raises(KeyError):
        google_server.fault(name)


def test_what_may_go_wrong_anywhere_may_do_so_at_every_endpoint(google_server):
    for endpoint in OF_THEIR_OWN:
        for name in ANYWHERE:
            google_server.fault(f"{endpoint}.{name}", times=0)
    assert google_server.happening("send", "") == ""


@pytest.mark.parametrize(
    ("fault", "candidates"), [("none", 0), ("two", 2), ("six", 6), ("next-page", 1)]
)
def test_a_search_finds_as_many_as_it_is_told(google, fault, candidates):
    google.server.fault(f"list.{fault}")
    page = ask(google, "list")
    assert len(page.messages) == candidates
    assert bool(page.next_page) is (fault == "next-page")


@pytest.mark.parametrize(
    ("fault", "filed"), [("twice", 2), ("vanishes", 0), ("not-in-sent", 0), ("other-thread", 1)]
)
def test_what_was_filed_is_what_the_fault_says(google, fault, filed):
    before = len(google.person.mailbox.sent())
    google.server.fault(f"send.{fault}")
    ask(google, "send")
    assert len(google.person.mailbox.sent()) - before == filed
    assert google.world.posts == 1


def test_gmail_may_replace_the_message_id_of_what_it_sends(google):
    google.server.fault("send.replaces-message-id", times=1)
    answer = ask(google, "send")
    stored = google.person.mailbox.messages[answer.message_id]
    assert stored.rfc822_message_id == "CA+replaced@mail.gmail.com"
    kept = google.person.mailbox.messages[ask(google, "send").message_id]
    assert kept.rfc822_message_id != "CA+replaced@mail.gmail.com"
    assert kept.raw.startswith(b"Received: ")


def test_a_source_may_change_between_two_reads(google):
    google.server.fault("message.changes-after", times=1)
    assert ask(google, "message").raw != ask(google, "message").raw
    google.server.fault("thread.grows-after", times=1)
    assert len(ask(google, "thread").messages) == 2
    assert len(ask(google, "thread").messages) == 3

"""What the Google gateway promises: the same over HTTP to a synthetic Google and in memory."""

from __future__ import annotations

import json

import pytest

from approvals.exceptions import ContactRefused
from approvals.types import Contact
from guards.exceptions import InvalidInput
from guards.secrets import Secret
from mail.gateways.google.base import (
    AnswerTooLarge,
    Credential,
    CredentialRefused,
    HistoryGone,
    Missing,
    NeedsReconnect,
    SendKind,
    StatusRefused,
    TimedOut,
)
from tests.mail.factories import make_mail
from tests.mail.google import ADDRESS, CountingGrant, Google, in_memory, over_http, resource

pytestmark = pytest.mark.one_database


@pytest.fixture(params=["memory", "http"])
def google(request: pytest.FixtureRequest) -> Google:
    """One person at each of the siblings."""
    if request.param == "memory":
        return in_memory()
    return over_http(request.getfixturevalue("google_server"))


def call(google: Google, method: str):
    """Any method, with arguments that fit."""
    stored = next(iter(google.person.mailbox.messages.values()), None)
    arguments = {
        "userinfo": {},
        "profile": {},
        "thread": {"thread_id": stored.thread_id if stored else "1"},
        "thread_headers": {"thread_id": stored.thread_id if stored else "1"},
        "message_raw": {"message_id": stored.id if stored else "1"},
        "message_headers": {"message_id": stored.id if stored else "1"},
        "send": {"request_json": resource()},
        "list_sent": {"rfc822_message_id": "one@example.org"},
        "find_source": {"rfc822_message_id": "one@example.org"},
        "list_messages": {"label": "INBOX"},
        "history": {"label": "INBOX", "start": 1000},
    }
    issued = google.send if method == "send" else google.read
    return google.ask(method, issued, **arguments[method])


METHODS = {
    "userinfo": (Contact.USERINFO, "userinfo"),
    "profile": (Contact.PROFILE, "profile"),
    "thread": (Contact.READ, "thread"),
    "thread_headers": (Contact.READ, "thread"),
    "message_raw": (Contact.READ, "message"),
    "message_headers": (Contact.READ, "message"),
    "send": (Contact.POST, "send"),
    "list_sent": (Contact.LIST, "list"),
    "find_source": (Contact.READ, "list"),
    "list_messages": (Contact.LIST, "list"),
    "history": (Contact.LIST, "history"),
}


def test_a_refresh_gives_a_token_and_the_scope_just_as_it_was_answered(google):
    answer = google.client.refresh(grant=google.grant, credential=google.read.credential)
    assert answer.scope == (
        "https://www.googleapis.com/auth/gmail.readonly openid "
        "https://www.googleapis.com/auth/userinfo.email"
    )
    assert (answer.token_type, answer.expires_in) == ("Bearer", 3599)
    assert "ya29" not in repr(answer)
    assert google.world.count("token", google.read.name) == 1


@pytest.mark.parametrize("method", METHODS)
def test_each_call_is_one_contact_that_was_paid_for_by_its_kind(google, method):
    google.person.mailbox.add(make_mail())
    call(google, method)
    contact, endpoint = METHODS[method]
    assert google.grant.spent == {Contact.REFRESH: 1, contact: 1}
    assert google.world.count() == 2
    assert google.world.count(endpoint) == 1


@pytest.mark.parametrize("method", METHODS)
def test_a_contact_that_is_not_granted_is_not_made(google, method):
    google.person.mailbox.add(make_mail())
    issued = google.send if method == "send" else google.read
    google.tokens[issued.name] = google.token(issued)
    google.grant = CountingGrant(refused=frozenset(Contact))
    with pytest.raises(ContactRefused):
        call(google, method)
    assert google.world.count() == 1


@pytest.mark.parametrize("method", sorted(METHODS.keys() - {"send"}))
def test_a_job_that_is_over_contacts_nothing_and_spends_nothing(google, method):
    google.person.mailbox.add(make_mail())
    google.tokens[google.read.name] = google.token(google.read)
    google.grant = CountingGrant(seconds=0.0)
    with pytest.raises(TimedOut) as caught:
        call(google, method)
    assert not caught.value.begun
    assert not google.grant.spent
    assert google.world.count() == 1


def test_a_send_in_a_job_that_is_over_has_not_begun(google):
    google.tokens[google.send.name] = google.token(google.send)
    google.grant = CountingGrant(seconds=0.0)
    assert call(google, "send").kind is SendKind.NOT_BEGUN
    assert google.world.posts == 0


def test_it_says_who_a_token_speaks_for_and_which_mailbox_it_opens(google):
    told = google.ask("userinfo")
    assert (told.subject, told.email, told.email_verified) == (google.person.subject, ADDRESS, True)
    assert google.ask("userinfo", google.send) == told
    assert google.ask("profile").email == ADDRESS


def test_a_credential_can_do_what_its_scopes_say_and_no_more(google):
    stored = google.person.mailbox.add(make_mail())
    with pytest.raises(StatusRefused) as caught:
        google.ask("thread", google.send, thread_id=stored.thread_id)
    assert (caught.value.reason, caught.value.permanent) == ("http-403", True)
    answer = google.ask("send", google.read, request_json=resource())
    assert (answer.kind, answer.reason) == (SendKind.REFUSED, "http-403")
    assert not google.person.mailbox.sent()


def test_a_thread_comes_whole_with_the_facts_of_its_messages(google):
    box = google.person.mailbox
    first = box.add(make_mail(subject="One"), at=1_700_000_000)
    second = box.add(make_mail(subject="Re: One"), thread_id=first.id, labels=("SENT",))
    box.add(make_mail(subject="Another"))
    answer = google.ask("thread", thread_id=first.id)
    assert [one.id for one in answer.messages] == [first.id, second.id]
    assert answer.messages[0].labels == {"INBOX", "UNREAD"}
    assert answer.messages[0].internal_date == 1_700_000_000_000
    assert answer.history_id == second.history_id
    headers = google.ask("thread_headers", thread_id=first.id)
    assert tuple(one.facts for one in headers.messages) == answer.messages
    assert [dict(one.headers)["Subject"] for one in headers.messages] == ["One", "Re: One"]
    assert (headers.id, headers.history_id) == (answer.id, answer.history_id)


@pytest.mark.parametrize("contact", [Contact.READ, Contact.GET])
def test_a_message_comes_byte_for_byte_and_is_paid_for_as_the_caller_says(google, contact):
    raw = make_mail(text="Zwölf.\n.dot\n")
    stored = google.person.mailbox.add(raw)
    answer = google.ask("message_raw", message_id=stored.id, contact=contact)
    assert answer.raw == raw
    assert answer.facts.thread_id == stored.thread_id
    assert google.grant.spent[contact] == 1


def test_a_message_beyond_its_bound_is_refused_not_cut(google):
    stored = google.person.mailbox.add(make_mail(text="x" * 300_000))
    with pytest.raises(AnswerTooLarge):
        google.ask("message_raw", message_id=stored.id)
    whole = google.ask("message_raw", message_id=stored.id, max_bytes=600_000)
    assert whole.raw == stored.raw
    head = google.ask("message_headers", message_id=stored.id)
    assert head.size == len(stored.raw)
    assert ("Subject", "Hello") in head.headers


def test_what_is_not_there_is_missing(google):
    stored = google.person.mailbox.add(make_mail())
    google.person.mailbox.delete(stored.id)
    with pytest.raises(Missing):
        google.ask("message_raw", message_id=stored.id)
    with pytest.raises(Missing):
        google.ask("thread", thread_id=stored.thread_id)


@pytest.mark.parametrize("hostile", ["", "../profile", "a/b", "a?x=1", "a b", "ä", "a\r\nX: 1"])
def test_nothing_but_an_id_gets_into_a_path(google, hostile):
    google.tokens[google.read.name] = google.token(google.read)
    before = google.world.count()
    for method, name in (
        ("thread", "thread_id"),
        ("message_raw", "message_id"),
        ("message_headers", "message_id"),
        ("list_messages", "label"),
    ):
        with pytest.raises(InvalidInput) as caught:
            google.ask(method, **{name: hostile})
        assert caught.value.field == name
    assert google.world.count() == before


@pytest.mark.parametrize("hostile", ["", "a@b OR in:inbox", "<a@b>", 'a"@b', "a@b\r\n", "(a@b)"])
def test_nothing_but_an_id_of_ours_gets_into_a_search(google, hostile):
    google.tokens[google.read.name] = google.token(google.read)
    for method in ("list_sent", "find_source"):
        with pytest.raises(InvalidInput):
            google.ask(method, rfc822_message_id=hostile)
    assert google.world.count("list") == 0


def test_a_message_that_came_another_way_is_found_in_the_mailbox(google):
    wanted = google.person.mailbox.add(make_mail(message_id="CA+x=y/z$1@mail.example.org"))
    google.person.mailbox.add(make_mail())
    page = google.ask("find_source", rfc822_message_id="CA+x=y/z$1@mail.example.org")
    assert [one.id for one in page.messages] == [wanted.id]


def test_what_was_posted_lies_in_sent_and_is_found_by_its_id(google):
    source = google.person.mailbox.add(make_mail())
    raw = make_mail(sender=ADDRESS, message_id="ours@countersign.test")
    posted = resource(raw, source.thread_id)
    answer = google.ask("send", google.send, request_json=posted)
    assert (answer.kind, answer.reason, answer.thread_id) == (
        SendKind.TAKEN,
        "http-200",
        source.thread_id,
    )
    assert answer.labels == {"SENT"}
    (found,) = google.ask("list_sent", rfc822_message_id="ours@countersign.test").messages
    assert (found.id, found.thread_id) == (answer.message_id, source.thread_id)
    filed = google.ask("message_raw", message_id=found.id, contact=Contact.GET)
    assert filed.raw.endswith(raw)
    assert [one.body for one in google.world.contacts if one.endpoint == "send"] == [posted]


def test_a_resource_that_google_cannot_read_is_refused_for_certain(google):
    answer = google.ask("send", google.send, request_json=json.dumps({"raw": 5}).encode())
    assert (answer.kind, answer.status) == (SendKind.REFUSED, 400)
    answer = google.ask("send", google.send, request_json=resource(thread_id="19b0000000000009"))
    assert (answer.kind, answer.status) == (SendKind.REFUSED, 404)
    assert not google.person.mailbox.sent()


@pytest.mark.parametrize("size", [0, 32 * 1024 + 1])
def test_a_resource_out_of_bounds_is_not_posted(google, size):
    with pytest.raises(InvalidInput):
        google.ask("send", google.send, request_json=b"x" * size)
    assert google.world.posts == 0


def test_more_candidates_than_may_be_looked_at_show(google):
    raw = make_mail(sender=ADDRESS, message_id="ours@countersign.test")
    for _ in range(7):
        google.person.mailbox.add(raw, labels=("SENT",))
    page = google.ask("list_sent", rfc822_message_id="ours@countersign.test")
    assert len(page.messages) == 6
    assert page.next_page


def test_a_label_is_listed_in_pages_newest_first(google):
    raw = make_mail()
    stored = [google.person.mailbox.add(raw).id for _ in range(501)]
    google.person.mailbox.add(make_mail(), labels=("SENT",))
    first = google.ask("list_messages", label="INBOX")
    rest = google.ask("list_messages", label="INBOX", page=first.next_page)
    assert [one.id for one in (*first.messages, *rest.messages)] == stored[::-1]
    assert rest.next_page == ""


def test_the_history_tells_what_came_under_a_label_once_each(google):
    box = google.person.mailbox
    start = box.history_id
    came = box.add(make_mail())
    box.label(came.id, "STARRED")
    box.add(make_mail(), labels=("SENT",))
    restored = box.add(make_mail(), labels=())
    box.label(restored.id, "INBOX")
    page = google.ask("history", label="INBOX", start=start)
    assert [one.id for one in page.messages] == [came.id, restored.id]
    assert page.history_id == box.history_id
    assert google.ask("history", label="INBOX", start=page.history_id).messages == ()


@pytest.mark.fault("send-20")
def test_a_history_that_does_not_reach_back_says_so(google):
    start = google.person.mailbox.history_id
    google.person.mailbox.forget_history()
    with pytest.raises(HistoryGone):
        google.ask("history", label="INBOX", start=start)


@pytest.mark.fault("send-16")
def test_a_revoked_refresh_token_needs_a_person(google):
    google.read.revoked = True
    with pytest.raises(NeedsReconnect) as caught:
        google.token(google.read)
    assert (caught.value.code, caught.value.permanent) == ("needs-reconnect", True)
    assert google.world.count() == 1


def test_a_wrong_client_secret_is_another_fault_than_a_revoked_token(google):
    known = google.read.credential
    wrong = Credential(known.client_id, Secret("another"), known.refresh_token)
    with pytest.raises(CredentialRefused) as caught:
        google.client.refresh(grant=google.grant, credential=wrong)
    assert caught.value.permanent
    assert "another" not in str(caught.value)


@pytest.mark.fault("send-19")
def test_a_token_that_is_over_its_time_passes_by_itself(google):
    google.ask("profile")
    google.world.forget_tokens()
    with pytest.raises(StatusRefused) as caught:
        google.ask("profile")
    assert (caught.value.reason, caught.value.permanent) == ("http-401", False)
    google.tokens.clear()
    assert google.ask("profile").email == ADDRESS


def test_swapped_credentials_speak_for_the_other_person(google):
    other = google.world.add_person("other@gmail.test")
    foreign = google.world.issue(other, "send")
    google.world.swap(google.send, foreign)
    assert google.ask("userinfo", google.send).subject == other.subject
    assert google.ask("userinfo", google.read).subject == google.person.subject


def test_a_lost_answer_leaves_the_message_filed(google):
    if google.server is None:
        google.world.lose("send")
    else:
        google.server.fault("send.reset-after", times=1)
    answer = google.ask("send", google.send, request_json=resource())
    assert (answer.kind, answer.reason) == (SendKind.LOST, "connection-lost")
    assert google.world.posts == 1
    assert len(google.person.mailbox.sent()) == 1

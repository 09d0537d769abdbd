"""What can go wrong between us and Google, and that each request was made once or not at all."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from approvals.types import Contact
from config.embedded_mail import make_certificate
from mail.gateways.google import http
from mail.gateways.google.base import (
    ABSENT,
    AnswerTooLarge,
    BadAnswer,
    ConnectionBroken,
    CredentialRefused,
    GoogleError,
    NeedsReconnect,
    NotReached,
    RedirectRefused,
    SendKind,
    StatusRefused,
    TimedOut,
    UntrustedServer,
)
from mail.gateways.google.client import GoogleClient
from mail.gateways.google.http import Host, HttpWire
from tests.mail.factories import make_mail
from tests.mail.google import CountingGrant, Google, over_http, resource
from tests.mail.test_google_gateway import METHODS, call

pytestmark = pytest.mark.one_database

#: One call for each kind of answer; the others read the same ones.
READS = sorted(METHODS.keys() - {"send", "thread", "find_source", "list_messages"})


@pytest.fixture
def google(google_server) -> Google:
    """One person at the synthetic Google, with a message and both tokens in hand."""
    made = over_http(google_server)
    made.person.mailbox.add(make_mail())
    for issued in (made.read, made.send):
        made.tokens[issued.name] = made.token(issued)
    google_server.google.contacts.clear()
    made.grant.spent.clear()
    return made


@pytest.fixture
def hasty(google: Google) -> Google:
    """The same, with little patience."""
    assert google.server is not None
    google.client = GoogleClient(HttpWire(google.server.origins), seconds=0.3)
    return google


def refused(google: Google, method: str, fault: str) -> GoogleError:
    """The error that a call ends with under a fault, after exactly one contact."""
    contact, endpoint = METHODS[method]
    google.server.fault(f"{endpoint}.{fault}")
    with pytest.raises(GoogleError) as caught:
        call(google, method)
    assert google.world.count() == 1
    assert google.grant.spent == {contact: 1}
    assert caught.value.begun
    return caught.value


@pytest.mark.fault("send-18")
@pytest.mark.parametrize("method", READS)
@pytest.mark.parametrize(
    "fault", ["status-401", "status-429", "status-500", "status-503", "rate-limit"]
)
def test_what_passes_by_itself_is_no_reason_to_connect_again(google, method, fault):
    error = refused(google, method, fault)
    assert isinstance(error, StatusRefused)
    assert not error.permanent


@pytest.mark.parametrize("method", READS)
@pytest.mark.parametrize("fault", ["status-400", "status-403"])
def test_a_refusal_that_stays_is_permanent(google, method, fault):
    assert refused(google, method, fault).permanent


@pytest.mark.parametrize("method", READS)
def test_no_redirect_is_followed(google, method):
    assert isinstance(refused(google, method, "redirect"), RedirectRefused)
    assert google.world.count("elsewhere") == 0


@pytest.mark.parametrize("method", READS)
@pytest.mark.parametrize("fault", ["reset-before", "reset-after", "truncated"])
def test_a_connection_that_breaks_is_not_tried_again(google, method, fault):
    assert isinstance(refused(google, method, fault), ConnectionBroken)


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        pytest.param(method, fault, marks=[] if number % 3 == at else [pytest.mark.soak])
        for number, method in enumerate(READS)
        for at, fault in enumerate(["hang", "slow", "drip"])
    ],
)
def test_an_answer_has_to_be_whole_within_its_time_however_steadily_it_drips(hasty, method, fault):
    assert isinstance(refused(hasty, method, fault), TimedOut)


@pytest.mark.parametrize("method", READS)
@pytest.mark.parametrize("fault", ["too-large", "endless"])
def test_no_more_is_read_than_may_be(google, method, fault):
    assert isinstance(refused(google, method, fault), AnswerTooLarge)


@pytest.mark.parametrize("method", READS)
@pytest.mark.parametrize(
    ("fault", "field"),
    [
        ("garbage", "body"),
        ("not-object", "body"),
        ("nan", "body"),
        ("deep", "body"),
        ("utf-16", "body"),
        ("empty", "body"),
        ("not-json", "content-type"),
        ("gzip", "content-encoding"),
        ("no-length", "content-length"),
    ],
)
def test_an_answer_that_is_no_json_object_does_not_count(google, method, fault, field):
    error = refused(google, method, fault)
    assert isinstance(error, BadAnswer)
    assert error.field == field


@pytest.mark.parametrize("method", READS)
def test_a_field_that_stands_twice_is_named(google, method):
    error = refused(google, method, "doubled")
    assert isinstance(error, BadAnswer)
    assert error.field in ("sub", "emailAddress", "id", "resultSizeEstimate", "history", "messages")


@pytest.mark.parametrize(
    ("method", "fault", "field"),
    [
        ("userinfo", "no-subject", "sub"),
        ("userinfo", "subject-number", "sub"),
        ("userinfo", "subject-huge", "sub"),
        ("userinfo", "verified-text", "email_verified"),
        ("userinfo", "no-verified", "email_verified"),
        ("userinfo", "no-email", "email"),
        ("profile", "no-mailbox", "emailAddress"),
        ("profile", "history-number", "historyId"),
        ("thread", "next-page", "nextPageToken"),
        ("thread", "other-thread", "id"),
        ("thread", "foreign-message", "messages[1].threadId"),
        ("thread", "no-messages", "messages"),
        ("thread", "message-twice", "messages"),
        ("thread", "history-number", "historyId"),
        ("thread_headers", "next-page", "nextPageToken"),
        ("thread_headers", "other-thread", "id"),
        ("thread_headers", "foreign-message", "messages[1].threadId"),
        ("thread_headers", "no-messages", "messages"),
        ("thread_headers", "message-twice", "messages"),
        ("message_raw", "other-message", "id"),
        ("message_raw", "no-raw", "raw"),
        ("message_raw", "raw-plain-base64", "raw"),
        ("message_raw", "raw-stray-bits", "raw"),
        ("message_raw", "raw-empty", "raw"),
        ("message_raw", "label-twice", "labelIds"),
        ("list_messages", "same-twice", "messages"),
        ("list_messages", "no-thread", "messages[0].threadId"),
        ("list_messages", "messages-null", "messages"),
        ("history", "no-history-id", "historyId"),
    ],
)
def test_a_field_that_is_missing_doubled_or_of_another_type_is_named(google, method, fault, field):
    error = refused(google, method, fault)
    assert isinstance(error, BadAnswer)
    assert error.field == field


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        ("userinfo", "other-subject"),
        ("userinfo", "other-email"),
        ("userinfo", "email-upper-case"),
        ("userinfo", "unverified"),
        ("userinfo", "other-issuer"),
        ("profile", "other-mailbox"),
        ("profile", "mailbox-upper-case"),
        ("profile", "mailbox-dots"),
        ("thread", "eleven-messages"),
        ("message_raw", "other-thread"),
        ("message_raw", "not-in-sent"),
    ],
)
def test_what_only_the_caller_can_judge_is_handed_on_as_it_is(google, method, fault):
    honest = call(google, method)
    google.server.fault(f"{METHODS[method][1]}.{fault}")
    assert call(google, method) != honest
    assert google.world.count() == 2


REFRESH_FAULTS = [
    ("scope-omitted", ABSENT),
    ("scope-null", None),
    ("scope-number", 7),
    ("scope-object", {}),
    ("scope-empty", ""),
    ("scope-blank", "   "),
]


@pytest.mark.parametrize(("fault", "scope"), REFRESH_FAULTS)
def test_the_scope_is_handed_on_as_it_stands_there_whatever_it_is(google, fault, scope):
    google.server.fault(f"token.{fault}")
    answer = google.client.refresh(grant=google.grant, credential=google.read.credential)
    assert answer.scope == scope
    assert type(answer.scope) is type(scope)


@pytest.mark.parametrize(
    ("fault", "field"),
    [
        ("no-token", "access_token"),
        ("token-number", "access_token"),
        ("token-injects", "access_token"),
        ("other-type", "token_type"),
        ("expires-text", "expires_in"),
        ("expires-never", "expires_in"),
        ("garbage", "body"),
        ("doubled", "access_token"),
    ],
)
def test_a_refresh_that_is_not_as_documented_gives_no_token(google, fault, field):
    google.server.fault(f"token.{fault}")
    with pytest.raises(BadAnswer) as caught:
        google.token(google.read)
    assert caught.value.field == field
    assert google.world.count() == 1
    assert google.grant.spent == {Contact.REFRESH: 1}


@pytest.mark.fault("send-16", "send-18")
@pytest.mark.parametrize(
    ("fault", "error", "permanent"),
    [
        ("invalid-grant", NeedsReconnect, True),
        ("invalid-client", CredentialRefused, True),
        ("invalid-request", StatusRefused, True),
        ("status-401", StatusRefused, False),
        ("status-429", StatusRefused, False),
        ("status-500", StatusRefused, False),
        ("status-503", StatusRefused, False),
        ("redirect", RedirectRefused, True),
    ],
)
def test_only_a_revoked_token_asks_for_a_person(google, fault, error, permanent):
    google.server.fault(f"token.{fault}", times=1)
    with pytest.raises(error) as caught:
        google.token(google.read)
    assert caught.value.permanent is permanent
    assert google.world.count() == 1
    google.token(google.read)


@pytest.mark.invariant(19)
@pytest.mark.fault("send-03")
@pytest.mark.parametrize(
    ("fault", "kind", "reason", "filed"),
    [
        ("status-400", SendKind.REFUSED, "http-400", 0),
        ("status-401", SendKind.REFUSED, "http-401", 0),
        ("status-429", SendKind.REFUSED, "http-429", 0),
        ("status-500", SendKind.REFUSED, "http-500", 0),
        ("status-503", SendKind.REFUSED, "http-503", 0),
        ("status-500-after", SendKind.REFUSED, "http-500", 1),
        ("redirect", SendKind.REFUSED, "http-307", 0),
        ("reset-before", SendKind.LOST, "connection-lost", 0),
        ("reset-after", SendKind.LOST, "connection-lost", 1),
        ("truncated", SendKind.LOST, "connection-lost", 1),
        ("hang", SendKind.LOST, "timed-out", 0),
        ("slow", SendKind.LOST, "timed-out", 1),
        ("too-large", SendKind.LOST, "answer-too-large", 1),
        ("garbage", SendKind.UNREADABLE, "bad-answer", 1),
        ("doubled", SendKind.UNREADABLE, "bad-answer", 1),
        ("not-json", SendKind.UNREADABLE, "bad-answer", 1),
        ("no-id", SendKind.UNREADABLE, "bad-answer", 1),
        ("no-thread-answer", SendKind.UNREADABLE, "bad-answer", 1),
    ],
)
def test_whatever_becomes_of_a_post_it_is_made_once_and_told_for_what_it_is(
    hasty, fault, kind, reason, filed
):
    hasty.server.fault(f"send.{fault}")
    answer = hasty.ask("send", hasty.send, request_json=resource())
    assert (answer.kind, answer.reason) == (kind, reason)
    assert hasty.world.posts == 1
    assert hasty.grant.spent == {Contact.POST: 1}
    assert hasty.world.count("elsewhere") == 0
    if filed:  # an answer that got lost may have been on its way before the message was filed
        hasty.server.closing.wait(0.1)
    assert len(hasty.person.mailbox.sent()) == filed


def test_where_nobody_listens_the_request_has_not_begun(google):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        origin = f"http://127.0.0.1:{free.getsockname()[1]}"
        google.client = GoogleClient(HttpWire(dict.fromkeys(Host, origin)))
        with pytest.raises(NotReached) as caught:
            call(google, "profile")
        assert not caught.value.begun
        answer = google.ask("send", google.send, request_json=resource())
    assert (answer.kind, answer.reason) == (SendKind.NOT_BEGUN, "not-reached")


def test_a_name_that_does_not_exist_is_not_reached(google):
    origins = dict.fromkeys(Host, "https://no-such-host.invalid")
    google.client = GoogleClient(HttpWire(origins))
    with pytest.raises((NotReached, TimedOut)) as caught:
        call(google, "profile")
    assert not caught.value.begun


@pytest.fixture
def tls_server(short_directory, monkeypatch) -> Iterator[_TlsServer]:
    """A TLS server that says it is Gmail, and an environment that asks for a key log."""
    monkeypatch.setenv("SSLKEYLOGFILE", str(short_directory / "tls-keys"))
    http._tls.cache_clear()
    with _TlsServer(short_directory) as server:
        yield server
    http._tls.cache_clear()
    assert not (short_directory / "tls-keys").exists()


def test_a_server_that_cannot_prove_its_name_gets_nothing_of_the_request(google, tls_server):
    google.client = GoogleClient(HttpWire(tls_server.origins))
    with pytest.raises(UntrustedServer) as caught:
        call(google, "profile")
    answer = google.ask("send", google.send, request_json=resource())
    assert not caught.value.begun
    assert (answer.kind, answer.reason) == (SendKind.NOT_BEGUN, "certificate-refused")
    assert tls_server.heard == []


def test_a_server_whose_certificate_counts_is_asked_over_tls(google, tls_server, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(tls_server.certificate))
    google.client = GoogleClient(HttpWire(tls_server.origins))
    assert call(google, "profile").email == "over.tls@gmail.test"
    (heard,) = tls_server.heard
    assert heard.startswith(b"GET /gmail/v1/users/me/profile HTTP/1.1\r\n")


def test_the_environment_cannot_put_anybody_between_us_and_google(google, monkeypatch):
    for name in (
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
    ):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    assert call(google, "profile").email == google.person.email


def test_plain_http_is_for_this_machine_alone():
    for url in ("http://gmail.googleapis.com", "ftp://127.0.0.1", "http://127.0.0.1.evil.test", ""):
        with pytest.raises(ValueError, match="no origin"):
            HttpWire({Host.GMAIL: url})
    HttpWire({Host.GMAIL: "http://127.0.0.1:1"})


def test_the_hosts_are_googles_own():
    assert {host.value for host in Host} == {
        "https://oauth2.googleapis.com",
        "https://openidconnect.googleapis.com",
        "https://gmail.googleapis.com",
    }


@pytest.mark.parametrize("seconds", [0, -1, 10.5])
def test_no_client_waits_longer_than_ten_seconds(seconds):
    with pytest.raises(ValueError, match="seconds"):
        GoogleClient(HttpWire(), seconds=seconds)


def test_a_request_has_no_more_time_than_its_job(google):
    google.server.fault("profile.hang")
    google.grant = CountingGrant(seconds=0.3)
    with pytest.raises(TimedOut):
        call(google, "profile")
    assert google.world.count() == 1


def test_every_request_has_a_connection_of_its_own_and_says_nothing_of_others(google):
    seen = []
    for endpoint in ("profile", "userinfo"):
        google.server.before[endpoint] = lambda: seen.append(threading.get_ident())
    call(google, "profile")
    call(google, "userinfo")
    assert len(seen) == 2
    assert google.world.count() == 2


@pytest.mark.parametrize("fault", ["garbage", "status-500", "reset-after", "doubled"])
def test_an_error_tells_neither_token_nor_body(google, fault):
    error = refused(google, "message_raw", fault)
    told = f"{error!r} {error} {error.detail} {error.__cause__!r} {error.__context__!r}"
    token = google.tokens[google.read.name].reveal()
    assert token not in told
    assert "alice" not in told
    assert error.__suppress_context__ or error.__context__ is None


class _TlsServer:
    """A TLS server with a certificate of its own making; `heard` is what came through."""

    def __init__(self, directory) -> None:
        self.certificate, key = make_certificate(directory)
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(self.certificate, key)
        self.heard: list[bytes] = []

    def __enter__(self) -> _TlsServer:
        self._listener = socket.create_server(("127.0.0.1", 0))
        origin = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
        self.origins = dict.fromkeys(Host, origin)
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        body = b'{"emailAddress": "over.tls@gmail.test", "historyId": "7"}'
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        with self._tls.wrap_socket(connection, server_side=True) as secured:
            self.heard.append(secured.recv(4096))
            secured.sendall(head.encode() + b"\r\n\r\n" + body)

"""IMAP servers that break off, shift numbers, answer NO, or stop answering."""

from __future__ import annotations

import socket
import threading

import pytest

from mail.exceptions import ConnectionLost, TlsRequired, TransportError
from mail.gateways import base, imap
from mail.gateways.base import Endpoint
from tests.mail.factories import make_mail
from tests.mail.scripted import ScriptedImap, literal

RAWS = [make_mail(subject=f"Number {n}") for n in range(1, 4)]


@pytest.fixture
def server():
    made = ScriptedImap()
    yield made
    made.close()


@pytest.fixture
def mailbox(server):
    with imap.ImapTransport().open_mailbox(server.endpoint) as opened:
        opened.select("INBOX")
        yield opened


@pytest.mark.invariant(5)
@pytest.mark.fault("imap-12")
def test_a_connection_that_ends_inside_a_literal_keeps_the_whole_messages(server, mailbox):
    half = literal(2, 2, RAWS[1])[:-200]
    sent = threading.Event()

    def break_off(tag, command):
        sent.set()
        return literal(1, 1, RAWS[0]) + half

    server.on(rb"UID FETCH", break_off)
    server.on(rb"LOGOUT", lambda tag, command: None)
    closer = threading.Timer(0.5, lambda: server_side_close(mailbox))
    closer.start()
    result = mailbox.fetch([1, 2, 3])
    closer.join()
    assert [message.raw for message in result.messages] == [RAWS[0]]
    assert result.absent == (2, 3)
    assert isinstance(result.broken, ConnectionLost)


def server_side_close(mailbox) -> None:
    mailbox._box.client.sock.shutdown(socket.SHUT_RD)


@pytest.mark.fault("imap-14", "imap-17", "imap-15")
def test_flags_of_other_mail_and_expunges_of_unknown_numbers_are_ignored(server, mailbox):
    server.on(
        rb"UID FETCH",
        b"* 99 EXPUNGE\r\n"
        b"* 7 FETCH (FLAGS (\\Seen))\r\n"
        + literal(1, 1, RAWS[0])
        + b"* 8 FETCH (UID 900 FLAGS (\\Deleted))\r\n"
        + b"* 1 EXPUNGE\r\n* 2 EXISTS\r\n"
        + literal(1, 2, RAWS[1])
        + literal(5, 55, RAWS[2])
        + b"%TAG% OK done\r\n",
    )
    result = mailbox.fetch([1, 2, 3])
    assert [(message.uid, message.raw) for message in result.messages] == [
        (1, RAWS[0]),
        (2, RAWS[1]),
    ]
    assert result.absent == (3,)
    assert not any(command.upper().startswith(b"FETCH") for command in server.commands)


@pytest.mark.fault("imap-16")
def test_a_no_to_fetch_keeps_what_came(server, mailbox):
    server.on(rb"UID FETCH", literal(1, 1, RAWS[0]) + b"%TAG% NO [EXPUNGEISSUED] some are gone\r\n")
    result = mailbox.fetch([1, 2])
    assert [message.uid for message in result.messages] == [1]
    assert result.absent == (2,)
    assert result.broken is None
    assert server.commands[-1] == b"NOOP"


def test_attributes_may_follow_the_literal_in_any_order(server, mailbox):
    raw = RAWS[0]
    server.on(
        rb"UID FETCH",
        b"* 1 FETCH (BODY[] {%d}\r\n" % len(raw)
        + raw
        + b" RFC822.SIZE %d FLAGS (\\Seen $Label)" % len(raw)
        + b' INTERNALDATE " 1-Dec-2026 10:00:00 -0130" UID 1)\r\n'
        + b"%TAG% OK done\r\n",
    )
    (message,) = mailbox.fetch([1]).messages
    assert message.raw == raw
    assert message.flags == {"\\Seen", "$Label"}
    assert message.internal_date.isoformat() == "2026-12-01T11:30:00+00:00"


def test_a_nil_body_is_absent(server, mailbox):
    server.on(rb"UID FETCH", b"* 1 FETCH (UID 1 RFC822.SIZE 10 BODY[] NIL)\r\n%TAG% OK done\r\n")
    assert mailbox.fetch([1]).absent == (1,)


@pytest.mark.fault("sister-9", "sister-12")
def test_a_refused_search_is_an_error_and_never_a_wider_answer(server, mailbox):
    server.on(rb"UID SEARCH", b"%TAG% NO not now\r\n")
    with pytest.raises(TransportError, match="SEARCH"):
        mailbox.uids_after(0)
    assert all(b"UID" in c for c in server.commands if b"SEARCH" in c.upper())


def test_the_star_of_a_range_never_brings_old_mail_back(server, mailbox):
    server.on(rb"UID SEARCH", b"* SEARCH 9\r\n%TAG% OK done\r\n")
    assert mailbox.uids_after(9) == ()


def test_an_answer_to_search_may_come_in_several_lines(server, mailbox):
    server.on(rb"UID SEARCH", b"* SEARCH 5 6\r\n* SEARCH 7\r\n%TAG% OK done\r\n")
    assert mailbox.uids_after(4) == (5, 6, 7)


def test_news_in_one_packet_with_the_start_of_idle_ends_it(server, mailbox):
    """Unread, it would lie in imaplib's buffer until the next look, when this server is gone."""
    gone = threading.Event()

    def lose_patience():
        gone.set()
        server_side_close(mailbox)

    server.on(rb"IDLE", b"+ idling\r\n* 4 EXISTS\r\n")
    server.on(rb"DONE", lambda tag, command: None if gone.is_set() else tag + b" OK done\r\n")
    patience = threading.Timer(5, lose_patience)
    patience.start()
    assert mailbox.idle(seconds=60)
    patience.cancel()


@pytest.mark.invariant(5)
@pytest.mark.fault("imap-09")
def test_a_server_that_never_greets_ends_in_an_error_within_the_timeout(monkeypatch):
    monkeypatch.setattr(imap, "TIMEOUT", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = Endpoint("127.0.0.1", silent.getsockname()[1], "user", "secret")
        with pytest.raises(ConnectionLost):
            imap.ImapTransport().open_mailbox(endpoint)
    assert base.TIMEOUT <= 30


@pytest.mark.invariant(5)
@pytest.mark.fault("imap-07")
def test_bye_during_idle_is_a_lost_connection(server, mailbox):
    server.on(rb"IDLE", b"+ idling\r\n* BYE closing\r\n")
    server.on(rb"DONE", lambda tag, command: None)
    with pytest.raises(ConnectionLost):
        mailbox.idle(seconds=5)


@pytest.mark.invariant(5)
@pytest.mark.fault("imap-06")
def test_a_line_that_is_silent_in_idle_is_noticed_when_idle_is_ended(server, mailbox):
    server.on(rb"DONE", lambda tag, command: None)
    with pytest.raises(ConnectionLost):
        mailbox.idle(seconds=0.1)


def test_a_server_without_starttls_is_refused_unless_it_is_loopback_and_allowed(server):
    allowed = server.endpoint
    refused = Endpoint(allowed.host, allowed.port, "user", "secret", allow_plaintext=False)
    with pytest.raises(TlsRequired):
        imap.ImapTransport().open_mailbox(refused)
    assert not any(command.upper().startswith(b"LOGIN") for command in server.commands)
    imap.ImapTransport().open_mailbox(allowed).close()


def test_plaintext_is_for_literal_loopback_hosts_only():
    assert Endpoint("127.0.0.1", 143, allow_plaintext=True).may_be_plaintext
    assert not Endpoint("mail.example.org", 143, allow_plaintext=True).may_be_plaintext
    assert not Endpoint("127.0.0.2", 143, allow_plaintext=True).may_be_plaintext
    assert not Endpoint("127.0.0.1", 143).may_be_plaintext


def test_certificates_are_checked_except_on_literal_loopback_or_by_request():
    assert Endpoint("mail.example.org", 993).checks_certificate
    assert Endpoint("127.0.0.1.example.org", 993).checks_certificate
    assert not Endpoint("LOCALHOST", 993).checks_certificate
    assert not Endpoint("mail.example.org", 993, skip_verify=True).checks_certificate

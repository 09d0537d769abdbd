"""The embedded mail server: every TLS, delivery into IMAP, a journal, and a bridge without SMTP."""

from __future__ import annotations

import asyncio
import imaplib
import smtplib
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from config.embedded_mail import (
    EmbeddedMail,
    Mailbox,
    Ports,
    make_certificate,
    read_journal,
    read_mailboxes,
    write_mailboxes,
)

ALICE = Mailbox("alice@x.test", "alice's password")
BOB = Mailbox("bob@x.test", "bob's password")
BRIDGE = Mailbox("bridge@x.test", "the bridge's password", takes_smtp=False)
RAW = b"From: alice@x.test\r\nTo: bob@x.test\r\nMessage-ID: <1@x.test>\r\n\r\nhello\r\n"


@pytest.fixture
def serve(short_directory: Path):
    """Run a blocking client against a started server."""

    async def run(client: Callable[[Ports, ssl.SSLContext], object]) -> object:
        server = EmbeddedMail(directory=short_directory, mailboxes=[ALICE, BOB, BRIDGE])
        async with server as ports:
            trusted = ssl.create_default_context(cafile=short_directory / "certificate.pem")
            return await asyncio.to_thread(client, ports, trusted)

    return lambda client: asyncio.run(run(client))


def _smtp(ports: Ports, tls: ssl.SSLContext, implicit: bool) -> smtplib.SMTP:
    if implicit:
        return smtplib.SMTP_SSL("127.0.0.1", ports.smtps, context=tls, timeout=10)
    client = smtplib.SMTP("127.0.0.1", ports.smtp, timeout=10)
    client.starttls(context=tls)
    return client


def _imap(ports: Ports, tls: ssl.SSLContext, implicit: bool, who: Mailbox) -> imaplib.IMAP4:
    if implicit:
        client: imaplib.IMAP4 = imaplib.IMAP4_SSL("127.0.0.1", ports.imaps, ssl_context=tls)
    else:
        client = imaplib.IMAP4("127.0.0.1", ports.imap)
        client.starttls(tls)
    client.login(who.address, who.password)
    return client


@pytest.mark.parametrize("implicit", [False, True])
def test_what_smtp_accepts_lies_in_the_inbox_and_in_the_journal(
    serve, short_directory: Path, implicit: bool
):
    def client(ports: Ports, tls: ssl.SSLContext) -> bytes:
        with _smtp(ports, tls, implicit) as smtp:
            smtp.login(ALICE.address, ALICE.password)
            smtp.sendmail(ALICE.address, ["BOB@x.test"], RAW)
        with _imap(ports, tls, implicit, BOB) as imap:
            imap.select("INBOX")
            return imap.uid("FETCH", "1:*", "(BODY.PEEK[])")[1][0][1]

    assert serve(client) == RAW
    [line] = read_journal(short_directory / "accepted.jsonl")
    assert (line["message_id"], line["to"], line["size"]) == ("1@x.test", ["BOB@x.test"], len(RAW))


def test_idle_tells_at_once_what_came_before_it(serve):
    """A client that looked, was overtaken by a mail, and then idles must hear of it."""

    def client(ports: Ports, tls: ssl.SSLContext) -> bytes:
        with _imap(ports, tls, False, BOB) as watching, _imap(ports, tls, False, BOB) as other:
            watching.select("INBOX")
            watching.uid("SEARCH", "ALL")
            assert other.append("INBOX", "", "", RAW)[0] == "OK"
            watching.send(b"A1 IDLE\r\n")
            watching.sock.settimeout(10)
            lines = [watching.readline(), watching.readline()]
            watching.send(b"DONE\r\n")
            while not watching.readline().startswith(b"A1 "):
                pass
            return b"".join(lines)

    assert b"* 1 EXISTS" in serve(client)


def test_the_bridge_takes_no_smtp_but_an_append(serve, short_directory: Path):
    def client(ports: Ports, tls: ssl.SSLContext) -> str:
        with _smtp(ports, tls, False) as smtp:
            smtp.login(ALICE.address, ALICE.password)
            with pytest.raises(smtplib.SMTPRecipientsRefused):
                smtp.sendmail(ALICE.address, [BRIDGE.address], RAW)
        with _imap(ports, tls, False, BRIDGE) as imap:
            return imap.append("INBOX", "", "", RAW)[0]

    assert serve(client) == "OK"
    assert read_journal(short_directory / "accepted.jsonl") == []


def test_nothing_is_taken_without_a_login_or_in_plain_text(serve):
    def client(ports: Ports, tls: ssl.SSLContext) -> None:
        with smtplib.SMTP("127.0.0.1", ports.smtp, timeout=10) as plain:
            plain.ehlo()
            assert plain.mail(ALICE.address)[0] == 530
        with _smtp(ports, tls, False) as smtp:
            with pytest.raises(smtplib.SMTPAuthenticationError):
                smtp.login(ALICE.address, "wrong")
            assert smtp.mail(ALICE.address)[0] == 530

    serve(client)


def test_the_certificate_is_made_once_and_its_key_is_private(short_directory: Path):
    certificate, key = make_certificate(short_directory)
    before = certificate.read_bytes()
    make_certificate(short_directory)
    assert certificate.read_bytes() == before
    assert key.stat().st_mode & 0o077 == 0


def test_mailboxes_are_written_privately(short_directory: Path):
    write_mailboxes(short_directory, [ALICE, BRIDGE])
    assert read_mailboxes(short_directory) == [ALICE, BRIDGE]
    assert (short_directory / "mailboxes.json").stat().st_mode & 0o077 == 0


def test_a_half_written_line_of_the_journal_does_not_count(short_directory: Path):
    path = short_directory / "accepted.jsonl"
    path.write_text('{"message_id": "1"}\n{"message_')
    assert read_journal(path) == [{"message_id": "1"}]


def test_a_port_that_is_taken_is_replaced_by_a_free_one(short_directory: Path):
    async def two_servers() -> tuple[Ports, Ports]:
        async with EmbeddedMail(directory=short_directory / "1", mailboxes=[ALICE]) as first:
            second = EmbeddedMail(directory=short_directory / "2", mailboxes=[ALICE], ports=first)
            async with second as other:
                return first, other

    first, other = asyncio.run(two_servers())
    assert {first.imap, first.imaps, first.smtp, first.smtps}.isdisjoint(
        {other.imap, other.imaps, other.smtp, other.smtps}
    )

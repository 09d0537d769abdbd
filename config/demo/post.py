"""Posting the sample mails: over SMTP like anybody else, or by IMAP APPEND into the bridge."""

from __future__ import annotations

import imaplib
import smtplib
import ssl

from config.demo.cast import STRANGER
from config.demo.letters import Letter
from config.demo.world import World
from config.embedded_mail import LOOPBACK, Ports

_TIMEOUT = 20.0


def post(world: World, ports: Ports, letter: Letter) -> None:
    """Bring one letter to its mailbox."""
    if letter.by_append:
        _append(world, ports, letter)
    else:
        _submit(world, ports, letter)


def _tls(world: World) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(world.mail / "certificate.pem"))


def _submit(world: World, ports: Ports, letter: Letter) -> None:
    with smtplib.SMTP(LOOPBACK, ports.smtp, timeout=_TIMEOUT) as client:
        client.starttls(context=_tls(world))
        client.login(STRANGER.address, world.password(STRANGER.address))
        client.sendmail(STRANGER.address, [letter.to], letter.raw)


def _append(world: World, ports: Ports, letter: Letter) -> None:
    with imaplib.IMAP4(LOOPBACK, ports.imap, timeout=_TIMEOUT) as client:
        client.starttls(ssl_context=_tls(world))
        client.login(letter.to, world.password(letter.to))
        status, answer = client.append("INBOX", "", "", letter.raw)
        if status != "OK":
            raise imaplib.IMAP4.error(f"APPEND was refused: {answer!r}")

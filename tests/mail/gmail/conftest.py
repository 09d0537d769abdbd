"""Fixtures of the exact reply: an account connected to the synthetic Google, over real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mail import registry
from mail.gateways.google.client import GoogleClient
from mail.gateways.google.http import HttpWire
from tests.databases import shared
from tests.mail.gmail.world import GmailWorld
from tests.servers.google import GoogleServer


@pytest.fixture
def world(
    db: None, google_server: GoogleServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[GmailWorld]:
    """An agent's account with its verified pair, and an operator's session."""
    yield from _connected(google_server, monkeypatch)


@pytest.fixture
def shared_world(
    transactional_db: None,
    tmp_path: Path,
    google_server: GoogleServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[GmailWorld]:
    """The same on a database that forked processes share."""
    with shared(tmp_path):
        yield from _connected(google_server, monkeypatch)


def _connected(server: GoogleServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[GmailWorld]:
    shipped = registry.google()
    monkeypatch.setenv("MAIL_SECRET", "unused")
    client = GoogleClient(HttpWire(server.origins), seconds=5.0)
    yield GmailWorld(server.google, client, monkeypatch, server)
    registry.register_google(shipped)

"""Fixtures of the exact reply: an account connected to the synthetic Google, over real sockets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from approvals import registry
from mail.gateways.google.client import GoogleClient
from mail.gateways.google.http import HttpWire
from tests.mail.gmail.world import GmailWorld
from tests.servers.google import GoogleServer


@pytest.fixture
def world(
    db: None, google_server: GoogleServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[GmailWorld]:
    """An agent's account with its verified pair, and an operator's session."""
    shipped = registry.act("mail.gmail")
    monkeypatch.setenv("MAIL_SECRET", "unused")
    client = GoogleClient(HttpWire(google_server.origins), seconds=2.0)
    yield GmailWorld(google_server.google, client, monkeypatch)
    registry.register_kind(shipped)

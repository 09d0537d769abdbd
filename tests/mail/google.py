"""What tests of Google's side share: grants that count, and a mailbox behind either sibling."""

from __future__ import annotations

import base64
import json
from collections import Counter
from dataclasses import dataclass, field

from approvals.exceptions import ContactRefused
from approvals.types import Contact
from guards.secrets import Secret
from mail.gateways.google.client import GoogleClient
from mail.gateways.google.http import HttpWire
from mail.gateways.google.memory import Issued, MemoryGoogle, MemoryWire, Person
from tests.mail.factories import make_mail
from tests.servers.google import GoogleServer

ADDRESS = "agent@gmail.test"


@dataclass
class CountingGrant:
    """Lets everything through that is not refused, and remembers it."""

    spent: Counter[Contact] = field(default_factory=Counter)
    refused: frozenset[Contact] = frozenset()
    seconds: float = 60.0

    def spend(self, contact: Contact) -> None:
        if contact in self.refused:
            raise ContactRefused("budget-spent")
        self.spent[contact] += 1

    def seconds_left(self) -> float:
        return self.seconds


@dataclass
class Google:
    """One person with all three credentials, and a client that speaks to that Google."""

    client: GoogleClient
    world: MemoryGoogle
    server: GoogleServer | None = None
    grant: CountingGrant = field(default_factory=CountingGrant)
    tokens: dict[str, Secret] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.person: Person = self.world.add_person(ADDRESS)
        self.read: Issued = self.world.issue(self.person, "read")
        self.send: Issued = self.world.issue(self.person, "send")
        self.readonly: Issued = self.world.issue(self.person, "readonly")

    def token(self, issued: Issued):
        """A fresh access token of that credential."""
        return self.client.refresh(grant=self.grant, credential=issued.credential).access_token

    def ask(self, method: str, issued: Issued | None = None, **arguments):
        """One call, with a token that is fetched at the first one."""
        used = issued or self.read
        if used.name not in self.tokens:
            self.tokens[used.name] = self.token(used)
        token = self.tokens[used.name]
        return getattr(self.client, method)(grant=self.grant, token=token, **arguments)


def over_http(server: GoogleServer, *, seconds: float = 10.0) -> Google:
    """The real wire, to the synthetic Google."""
    client = GoogleClient(HttpWire(server.origins), seconds=seconds)
    return Google(client, server.google, server)


def in_memory() -> Google:
    """The wire inside the process."""
    world = MemoryGoogle()
    return Google(GoogleClient(MemoryWire(world)), world)


def resource(raw: bytes | None = None, thread_id: str | None = None) -> bytes:
    """A message resource as it is posted."""
    written = base64.urlsafe_b64encode(raw or make_mail(sender=ADDRESS)).decode()
    return json.dumps({"raw": written, **({"threadId": thread_id} if thread_id else {})}).encode()

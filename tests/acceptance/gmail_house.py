"""An installation with an agent's Gmail mailbox, an operator, and drafts that wait for him."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mail.gateways.google.memory import Person
from tests.acceptance.towards_google import ORIGINS
from tests.servers import Installation
from tests.servers.google import GoogleServer

ADDRESS, SENDER = "agent@gmail.test", "bob@example.org"
NAME, PASSWORD = "olga", "olga-pass-1"

_BUILD = """
import datetime
from django.contrib.auth.models import User
from django.utils import timezone
from approvals.models import Connection
from approvals.services import artifacts, connections
from guards.types import Asker, Subject
from mail.models import Account
from teams.services import checkpoints
from tests.mail.factories import AccountFactory, IdentityFactory, make_contact

artifacts.ensure_key(); checkpoints.ensure_key()
User.objects.create_superuser(name, "", password)
identity = IdentityFactory(handle="agent", email=address, reply_policy="approve")
account = AccountFactory(identity=identity, sent_folder="", smtp_host="")
Account.objects.update(next_poll_at=timezone.now() + datetime.timedelta(days=1))
make_contact(identity, sender, "rwx")
for use in ("read", "send"):
    connections.import_connection(
        account=Subject("mail.account", str(account.pk)), use=use, client_id=clients[use],
        client_secret_ref=f"env:{use.upper()}_CLIENT", refresh_token_ref=f"env:{use.upper()}_TOKEN",
        by=Asker("operator", name), root=None,
    )
answer = account.pk
"""

_DRAFT = """
from guards.types import Asker, Subject
from mail.models import Account, Message
from mail.services import outbound
message = Message.objects.create(
    account=Account.objects.get(), number=number, sha256=f"{number:064x}", size=100,
    sender=sender, sender_name="Bob Example", subject=subject, message_id=message_id,
    text="How are they?\\n", trust_level="unverified", trust_reason="unsigned", permission="rwx",
    action="surface", verdict="allow", rule="read-permitted",
)
drafted = outbound.draft_reply(
    message_id=message.pk, text=text, origin=Subject("operator", f"test-{number}"), executes=True
)
held = outbound.submit(outbound_id=drafted.pk, asker=Asker("identity", "agent"))
answer = str(held.hold_id)
"""


@dataclass
class GmailHouse:
    """The installation, its Google, and where its console is."""

    installation: Installation
    google: GoogleServer
    person: Person
    address: str
    account: int
    letters: int = 0

    def draft(self, subject: str, text: str = "They are fine.\n", **headers: str) -> str:
        """A letter in Gmail and here, and an agent's reply to it that waits; the hold's id."""
        self.letters += 1
        message_id = f"letter-{self.letters}@example.org"
        named = {
            "From": f"Bob Example <{SENDER}>",
            "To": ADDRESS,
            "Subject": subject,
            "Date": "Tue, 1 Dec 2026 07:00:00 +0000",
            "Message-ID": f"<{message_id}>",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
        self.person.mailbox.add(head.encode() + b"\r\nHow are they?\r\n")
        held: str = self.installation.python(
            _DRAFT,
            number=self.letters,
            sender=SENDER,
            subject=subject,
            message_id=message_id,
            text=text,
        )
        return held

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What the database answers."""
        return self.installation.rows(query)


@contextmanager
def gmail_house(directory: Path, google: GoogleServer) -> Iterator[GmailHouse]:
    """Web and worker of such an installation, until the block ends."""
    person = google.google.add_person(ADDRESS)
    issued = {use: google.google.issue(person, use).credential for use in ("read", "send")}
    env = {
        "DJANGO_SETTINGS_MODULE": "tests.acceptance.google_settings",
        ORIGINS: json.dumps({host.name: at for host, at in google.origins.items()}),
        "MAIL_SECRET": "unused",
    }
    for use, one in issued.items():
        env[f"{use.upper()}_CLIENT"] = one.client_secret.reveal()
        env[f"{use.upper()}_TOKEN"] = one.refresh_token.reveal()
    with Installation(directory, **env) as installation:
        account = installation.python(
            _BUILD,
            name=NAME,
            password=PASSWORD,
            address=ADDRESS,
            sender=SENDER,
            clients={use: one.client_id for use, one in issued.items()},
        )
        _, address = installation.web()
        installation.worker()
        yield GmailHouse(installation, google, person, address, account)

"""The real worker sends exact replies to a Google on loopback, and is killed at every step.

Draft, snapshot, yes and contact run in processes of their own, as they do in an installation; what
Google was asked is counted at Google.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mail.gateways.google.memory import Person
from tests.servers import GoogleServer, Installation
from tests.servers.presence import wait_until
from tests.servers.processes import Process

#: Forked workers walk the same points in the normal run (tests/mail/gmail).
pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600), pytest.mark.soak]

ADDRESS, SENDER = "agent@gmail.test", "bob@example.org"
POINTS = (
    "approvals.services.effects:_claim:after",
    "mail.gmail.kind:GmailKind.observe:before",
    "mail.gmail.kind:GmailKind.observe:after",
    "approvals.services.effects:_mark:before",
    "approvals.services.effects:_mark:after",
    "mail.gmail.kind:GmailKind.contact:after",
    "mail.gmail.kind:GmailKind.readback:before",
    "mail.gmail.kind:GmailKind.readback:after",
    "approvals.services.effects:_record:after",
)
#: Before the mark, and after the POST; `make soak` walks them all, and tests/mail/gmail holds
#: every step with forks.
SHORT_WALK = (POINTS[3], POINTS[5])

_BUILD = """
from approvals.models import Connection
from approvals.services import artifacts, roots
from django.contrib.auth import get_user_model
from django.utils import timezone
from guards import secrets
from guards.services import contacts, identities
from guards.types import Asker, Rwx
from mail.services import accounts
from teams.services import checkpoints

by = Asker("operator", "ada")
artifacts.ensure_key(); checkpoints.ensure_key()
agent = identities.create_identity(handle="agent", email=address, reply_policy="approve", by=by)
contacts.add_contact(address=sender, grants={agent: Rwx.parse("rwx")}, by=by)
account = accounts.create_account(
    identity=agent, name="agent", host="127.0.0.1", port=1143, username=address,
    secret_ref=secrets.store("imap", "unused"), poll_interval="n", by=by,
)
for use, one in credentials.items():
    Connection.objects.create(
        account_type="mail.account", account_id=str(account.pk), use=use, declared=one["scopes"],
        client_id=one["client_id"], client_secret_ref=secrets.store("s-" + use, one["secret"]),
        refresh_token_ref=secrets.store("t-" + use, one["token"]), created_by=str(by),
        state="verified", verified_at=timezone.now(), observed=one["scopes"],
        observed_digest="0" * 64, subject=subject, address=address,
    )
ada = get_user_model().objects.create(username="ada", is_staff=True, is_superuser=True)
answer = str(roots.mint(user=ada, principal=by).pk)
"""

_APPROVE = """
from approvals.models import Root
from approvals.services import approvals, holds
from guards.types import Asker, Subject
from mail.models import Account, Message
from mail.services import outbound

by = Asker("operator", "ada")
message = Message.objects.create(
    account=Account.objects.get(), number=number, sha256=f"{number:064x}", size=100,
    sender=sender, subject="Figures", message_id=message_id, text="How are they?",
    trust_level="unverified", trust_reason="unsigned", permission="rwx", action="surface",
    verdict="allow", rule="read-permitted",
)
draft = outbound.draft_reply(
    message_id=message.pk, text=f"They are fine, {number}.", executes=True,
    origin=Subject("operator", str(number)),
)
draft = outbound.submit(outbound_id=draft.pk, asker=Asker("identity", "agent"))
root = Root.objects.get(pk=root_id)
approval = holds.open_for_review(hold_id=draft.hold_id, by=by, root=root)
effect = approvals.approve(
    approval_id=approval.pk, by=by, via="console", digest=approval.digest, root=root
)
answer = effect.pk.hex
"""


@dataclass
class House:
    """An installation whose Google is the synthetic one."""

    installation: Installation
    server: GoogleServer
    person: Person
    root_id: str = ""
    number: int = 0

    def build(self) -> None:
        credentials = {}
        for use in ("read", "send"):
            issued = self.server.google.issue(self.person, use)
            credentials[use] = {
                "client_id": issued.credential.client_id,
                "secret": issued.credential.client_secret.reveal(),
                "token": issued.credential.refresh_token.reveal(),
                "scopes": sorted("email" if "userinfo" in one else one for one in issued.scopes),
            }
        self.root_id = self.installation.python(
            _BUILD,
            address=ADDRESS,
            sender=SENDER,
            subject=self.person.subject,
            credentials=credentials,
        )

    def approve(self) -> tuple[str, str]:
        """A letter in Gmail, its reply, and the operator's yes; the effect and Gmail's thread."""
        self.number += 1
        message_id = f"letter-{self.number}@example.org"
        raw = (
            f"From: Bob <{SENDER}>\r\nTo: {ADDRESS}\r\nSubject: Figures\r\n"
            f"Message-ID: <{message_id}>\r\n\r\nHow are they?\r\n"
        ).encode()
        stored = self.person.mailbox.add(raw)
        effect_id = self.installation.python(
            _APPROVE,
            number=self.number,
            sender=SENDER,
            message_id=message_id,
            root_id=self.root_id,
        )
        return effect_id, stored.thread_id

    def phase(self, effect_id: str) -> str:
        [(phase,)] = self.installation.rows(
            f"SELECT phase FROM approvals_effect WHERE id = '{effect_id}'"  # noqa: S608
        )
        return phase

    def posts(self, thread_id: str) -> int:
        """How often Google was asked to send into that thread."""
        posted = [one.body for one in self.server.google.contacts if one.endpoint == "send"]
        return sum(json.loads(body)["threadId"] == thread_id for body in posted)

    def deadly(self, points: tuple[str, ...]) -> dict[str, str]:
        return {
            "CRASH_POINTS": ",".join(points),
            "CRASH_ARMED": str(self.installation.directory / "armed"),
        }

    def arm(self, point: str) -> Path:
        armed = self.installation.directory / "armed"
        armed.with_suffix(".new").write_text(point)
        armed.with_suffix(".new").rename(armed)
        return Path(f"{armed}.struck")


@pytest.fixture
def house(short_directory: Path, google_server: GoogleServer) -> Iterator[House]:
    origins = {host.name: address for host, address in google_server.origins.items()}
    environment: dict[str, Any] = {
        "PYTHONPATH": str(Path(__file__).parent / "crash"),
        "GOOGLE_ORIGINS": json.dumps(origins),
    }
    with Installation(short_directory, **environment) as installation:
        made = House(installation, google_server, google_server.google.add_person(ADDRESS))
        made.build()
        yield made


def _ends(house: House, effect_id: str, process: Process) -> str:
    wait_until(
        lambda: house.phase(effect_id) not in ("intent", "marked") or not process.is_alive(),
        f"the end of {effect_id}",
        90,
    )
    assert process.is_alive(), process.output()
    return house.phase(effect_id)


@pytest.mark.invariant(19)
@pytest.mark.fault("send-01", "send-02", "send-04")
@pytest.mark.parametrize(
    "points",
    [
        pytest.param(SHORT_WALK, id="the short walk"),
        pytest.param(POINTS, id="every step", marks=pytest.mark.soak),
    ],
)
def test_a_worker_killed_anywhere_posts_once_at_most(house: House, points: tuple[str, ...]):
    deadly = house.deadly(points)
    worker = house.installation.worker(**deadly)
    for point in points:
        struck = house.arm(point)
        effect_id, thread_id = house.approve()
        wait_until(lambda s=struck, w=worker: s.exists() or not w.is_alive(), f"{point}", 90)
        wait_until(lambda w=worker: not w.is_alive(), f"the end of the worker at {point}")
        assert struck.exists(), f"{point} was never reached:\n{worker.output()}"
        struck.unlink()
        worker.kill()
        worker = house.installation.worker(**deadly)
        phase, posts = _ends(house, effect_id, worker), house.posts(thread_id)
        if point.endswith(("_claim:after", "observe:before", "observe:after", "_mark:before")):
            assert (phase, posts) == ("cancelled", 0), point
        elif point.endswith("_mark:after"):
            assert (phase, posts) == ("unknown", 0), point
        elif point.endswith("_record:after"):
            assert (phase, posts) == ("verified", 1), point
        else:
            assert (phase, posts) == ("unknown", 1), point
    effect_id, thread_id = house.approve()
    assert (_ends(house, effect_id, worker), house.posts(thread_id)) == ("verified", 1)
    sent = [one.thread_id for one in house.person.mailbox.sent()]
    assert len(sent) == len(set(sent))

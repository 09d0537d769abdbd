"""The owner is told of a reply that waits, encrypted; his signed yes lets exactly it leave, once.

Real servers, real GnuPG, the real worker and watcher: in every run on PostgreSQL, where this is the
whole way of a mail and its reply; test_main_job.py goes that way on SQLite.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from pathlib import Path

import pytest

from tests.acceptance import world
from tests.acceptance.test_main_job import database_url  # noqa: F401 (a fixture)
from tests.keys import Key, Keys, decrypt, sign_detached
from tests.servers import DovecotServer, Installation, SmtpServer
from tests.servers.dovecot import PASSWORD
from tests.servers.presence import wait_until
from tests.servers.smtp import Accepted

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

OWNER = "reader@example.org"

_RECORDS = """
from approvals.models import Approval, Effect
from mail.models import MailedAnswer
from pipelines.models import Pipeline
from teams.services import verification
held = Approval.objects.exclude(hold=None).get()
answer = {
    "approval": [held.state, held.decided_via, held.decided_by],
    "answers": list(MailedAnswer.objects.values_list("state", "reason", "strength")),
    "effects": sorted(Effect.objects.values_list("phase", flat=True)),
    "pipelines": list(Pipeline.objects.values_list("status", flat=True)),
    "log": verification.verify().ok,
}
"""


@pytest.fixture
def user(dovecot: DovecotServer) -> str:
    return dovecot.new_user()


@pytest.fixture
def house(
    short_directory: Path,
    database_url: str,  # noqa: F811
    keys: Keys,
    dovecot: DovecotServer,
    smtp_server: SmtpServer,
    user: str,
) -> Iterator[Installation]:
    environment = world.owner_environment(keys.reader, short_directory)
    told = {"OWNER_EMAIL": OWNER, "BASE_URL": "https://countersign.example"}
    account = {
        "name": "agent",
        "host": dovecot.host,
        "port": dovecot.imap_port,
        "username": user,
        "imap_password": PASSWORD,
        "smtp_host": smtp_server.host,
        "smtp_port": smtp_server.smtp_port,
    }
    with Installation(short_directory, database_url=database_url, **environment, **told) as made:
        world.build(made, owner=keys.reader, sender=keys.alice, accounts=[account])
        made.execute("UPDATE guards_identity SET reply_policy = 'approve'")
        yield made


@pytest.mark.parametrize(
    "database_url", [pytest.param("sqlite", marks=pytest.mark.soak), "postgresql"], indirect=True
)
def test_a_held_reply_is_told_of_answered_by_mail_and_leaves_once(
    house: Installation,
    dovecot: DovecotServer,
    smtp_server: SmtpServer,
    keys: Keys,
    user: str,
) -> None:
    worker, watcher = house.worker(), house.watcher()
    world.wait_for_first_passes(house, 1)
    _, request = world.signed_request(keys.alice, 1001)
    dovecot.append(user, request)
    wait_until(lambda: _to(smtp_server, OWNER), "the notice to the owner", 90)
    (notice,) = _to(smtp_server, OWNER)
    text = _opened(keys.reader, notice)
    assert b"7 11 13" not in notice.content
    assert "The factors are 1001: 7 11 13" in text
    assert _to(smtp_server, world.SENDER) == []

    digest = re.findall(r"approve ([0-9a-f]{64})", text)[0]
    dovecot.append(user, _signed_order(keys.mallory, f"approve {digest}"))
    yes = _signed_order(keys.reader, f"approve {digest}")
    dovecot.append(user, yes)
    dovecot.append(user, yes.replace(b"Subject: Re: ", b"Subject: Again: "))
    wait_until(lambda: _to(smtp_server, world.SENDER), "the reply", 90)
    query = "SELECT count(*) FROM mail_mailedanswer WHERE state <> 'due'"
    wait_until(lambda: house.rows(query)[0][0] == 3, "every answer judged", 60)
    wait_until(lambda: dovecot.messages(user, "Sent"), "the copy in Sent", 60)

    assert worker.stop() == 0, worker.output()
    assert watcher.stop() == 0, watcher.output()
    (reply,) = _to(smtp_server, world.SENDER)
    assert hashlib.sha256(reply.content).hexdigest() in text, "what was shown is what left"
    records = house.inside(_RECORDS)
    assert records["approval"] == ["consumed", "mail", f"owner:{keys.reader.fingerprint}"]
    assert sorted(map(tuple, records["answers"])) == [
        ("done", "done", "witnessed"),
        ("refused", "replayed", "witnessed"),
        ("refused", "wrong-key", "reported"),
    ]
    assert records["pipelines"] == ["completed"]
    assert set(records["effects"]) == {"accepted"}
    assert records["log"] is True


def _to(server: SmtpServer, address: str) -> list[Accepted]:
    return [mail for mail in server.accepted if mail.recipients == [address]]


def _opened(key: Key, notice: Accepted) -> str:
    """What the owner's own GnuPG shows him."""
    _, message = message_from_bytes(notice.content, policy=default).iter_parts()
    inside = message_from_bytes(decrypt(key, message.get_payload(decode=True)), policy=default)
    assert isinstance(inside, EmailMessage)
    return str(inside.get_content())


def _signed_order(key: Key, text: str) -> bytes:
    """The order as PGP/MIME, from the owner's address."""
    part = f"Content-Type: text/plain; charset=utf-8\r\n\r\n{text}\r\n".encode()
    signature = sign_detached(key, part).replace(b"\n", b"\r\n")
    number = hashlib.sha256(signature).hexdigest()[:16]
    head = (
        f"From: Owner <{OWNER}>\r\nTo: {world.AGENT}\r\nSubject: Re: 1 draft waits for you\r\n"
        f"Message-ID: <{number}@example.org>\r\nMIME-Version: 1.0\r\n"
        'Content-Type: multipart/signed; micalg="pgp-sha256";\r\n'
        ' protocol="application/pgp-signature"; boundary="b1"\r\n\r\n'
    ).encode()
    return (
        head
        + b"--b1\r\n"
        + part
        + b"\r\n--b1\r\nContent-Type: application/pgp-signature\r\n\r\n"
        + signature
        + b"\r\n--b1--\r\n"
    )

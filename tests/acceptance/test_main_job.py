"""A signed mail arrives in a real mailbox; its reply arrives at a real SMTP server, once.

One installation per database, with the real worker and watcher; four accounts cover IMAPS and
STARTTLS with SMTP over STARTTLS and implicit TLS.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from email import message_from_bytes
from email.policy import default
from pathlib import Path

import pytest

from tests.acceptance import world
from tests.servers import DovecotServer, Installation, SmtpServer
from tests.servers.dovecot import PASSWORD
from tests.servers.presence import missing, wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

_RECORDS = """
from approvals.models import Effect
from approvals.services import artifacts
from mail.models import Message, Outbound
from pipelines.models import Pipeline
from teams.services import verification
answer = {
    "messages": Message.objects.count(),
    "rules": sorted(Message.objects.values_list("rule", flat=True)),
    "pipelines": list(Pipeline.objects.values_list("status", flat=True)),
    "effects": list(Effect.objects.values_list("phase", flat=True)),
    "payloads": sorted(artifacts.unseal(e.payload).hex() for e in Effect.objects.all()),
    "outbound": sorted(Outbound.objects.values_list("message_id", flat=True)),
    "log": verification.verify().ok,
}
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "sqlite":
        yield ""
        return
    server = request.getfixturevalue("postgres_server")
    url = server.new_database()
    yield url
    server.drop_database(url)


@pytest.fixture
def house(short_directory: Path, database_url: str, keys) -> Iterator[Installation]:
    environment = world.owner_environment(keys.owner, short_directory)
    with Installation(short_directory, database_url=database_url, **environment) as made:
        world.build(made, owner=keys.owner, sender=keys.alice)
        yield made


def test_a_mail_is_answered_over_every_kind_of_tls(
    house: Installation, dovecot: DovecotServer, smtp_server: SmtpServer, keys
):
    if dovecot.imaps_port is None or smtp_server.smtps_port is None:
        missing("the right to listen on ports 993 and 465")
    users = {}
    for imap_port in (dovecot.imap_port, dovecot.imaps_port):
        for smtp_port in (smtp_server.smtp_port, smtp_server.smtps_port):
            name = f"account-{len(users)}"
            users[name] = dovecot.new_user()
            world.add_account(
                house,
                name=name,
                host=dovecot.host,
                port=imap_port,
                username=users[name],
                imap_password=PASSWORD,
                smtp_host=smtp_server.host,
                smtp_port=smtp_port,
            )
    worker, watcher = house.worker(), house.watcher()
    world.wait_for_first_passes(house, len(users))

    sent = {}
    for number, user in enumerate(users.values(), start=1001):
        message_id, raw = world.signed_request(keys.alice, number)
        sent[number] = message_id
        dovecot.append(user, raw)
    wait_until(lambda: len(smtp_server.accepted) >= len(users), "the replies", 90)
    for user in users.values():
        wait_until(lambda user=user: dovecot.messages(user, "Sent"), "the copy in Sent", 60)

    assert worker.stop() == 0, worker.output()
    assert watcher.stop() == 0, watcher.output()
    _check_replies(smtp_server, sent)
    _check_records(house, smtp_server, len(users))
    for user in users.values():
        [filed] = dovecot.messages(user, "Sent")
        assert filed in [accepted.content for accepted in smtp_server.accepted]


def _check_replies(smtp_server: SmtpServer, sent: dict[int, str]) -> None:
    factors = {1001: "7 11 13", 1002: "2 3 167", 1003: "17 59", 1004: "2 2 251"}
    answered = set()
    for accepted in smtp_server.accepted:
        reply = message_from_bytes(accepted.content, policy=default)
        number = int(str(reply["Subject"]).rsplit(" ", 1)[1])
        answered.add(number)
        assert accepted.sender == world.AGENT
        assert accepted.recipients == [world.SENDER]
        assert reply["From"].addresses[0].addr_spec == world.AGENT
        assert reply["To"].addresses[0].addr_spec == world.SENDER
        assert reply["Auto-Submitted"] == "auto-replied"
        assert reply["In-Reply-To"] == sent[number]
        assert str(reply["References"]).split() == [
            f"<an-earlier-one-{number}@example.org>",
            sent[number],
        ]
        assert str(reply["Subject"]) == f"Re: The factors of {number}"
        text = reply.get_content().replace("\r\n", "\n").strip()
        assert text == f"The factors are {number}: {factors[number]}"
        assert b"\n" not in accepted.content.replace(b"\r\n", b"")
    assert answered == set(sent), "each mail is answered, and none twice"


def _check_records(house: Installation, smtp_server: SmtpServer, number: int) -> None:
    records = house.python(_RECORDS)
    assert records["messages"] == number
    assert records["rules"] == ["execute-permitted"] * number
    assert records["pipelines"] == ["completed"] * number
    assert records["effects"] == ["accepted"] * number
    assert records["log"] is True
    arrived = sorted(accepted.content.hex() for accepted in smtp_server.accepted)
    assert records["payloads"] == arrived, "what was approved is what left, byte for byte"
    assert len({hashlib.sha256(a.content).digest() for a in smtp_server.accepted}) == number

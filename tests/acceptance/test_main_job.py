"""A signed mail arrives in a real mailbox; its reply arrives at a real SMTP server, once.

One installation, with the real worker and watcher; two accounts cover IMAP over STARTTLS and TLS,
and SMTP over TLS and STARTTLS. What PostgreSQL can change of it, test_answer_by_mail.py sees there
in every run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import world
from tests.keys import Key
from tests.servers import DovecotServer, Installation, SmtpServer
from tests.servers.dovecot import PASSWORD
from tests.servers.presence import missing, wait_until
from tests.servers.smtp import Accepted

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


_PDF = b"%PDF-1.7\n" + bytes(range(256)) * 40
_FILES = '{"data": {"copied": true}, "files": [{"path": "02-report.pdf"}, {"path": "copy.pdf"}]}'
_FILE_COMMANDS: tuple[dict[str, Any], ...] = (
    {
        "schema": "command/1",
        "name": "copy",
        "serial": 1,
        "runner": "cli",
        "mode": "passthrough",
        "binary": "cp",
        "args": [
            {"name": "from", "type": "string", "position": 0, "from_pipe": "/files/0/path"},
            {"name": "to", "type": "string", "position": 1},
        ],
    },
    {
        "schema": "command/1",
        "name": "both",
        "serial": 1,
        "runner": "cli",
        "binary": "printf",
        "fixed_args": ["%s", _FILES],
        "files": True,
        "output_schema": {"type": "object", "required": ["copied"]},
    },
)
_FILE_RULE = {
    "name": "copy",
    "match": "copy",
    "calls": [{"command": "copy", "args": {"to": "copy.pdf"}}, {"command": "both", "args": {}}],
}


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.soak)])
def database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "sqlite":
        yield ""
        return
    server = request.getfixturevalue("postgres_server")
    url = server.new_database(server.migrated())
    yield url
    server.drop_database(url)


@pytest.fixture
def accounts(dovecot: DovecotServer, smtp_server: SmtpServer) -> list[dict[str, Any]]:
    """IMAP over STARTTLS with SMTP over TLS, and IMAP over TLS with SMTP over STARTTLS."""
    if dovecot.imaps_port is None or smtp_server.smtps_port is None:
        missing("the right to listen on ports 993 and 465")
    pairs = [
        (dovecot.imap_port, smtp_server.smtps_port),
        (dovecot.imaps_port, smtp_server.smtp_port),
    ]
    return [
        {
            "name": f"account-{imap_port}-{smtp_port}",
            "host": dovecot.host,
            "port": imap_port,
            "username": dovecot.new_user(),
            "imap_password": PASSWORD,
            "smtp_host": smtp_server.host,
            "smtp_port": smtp_port,
        }
        for imap_port, smtp_port in pairs
    ]


@pytest.fixture
def house(
    short_directory: Path, database_url: str, keys, accounts: list[dict[str, Any]]
) -> Iterator[Installation]:
    environment = world.owner_environment(keys.owner, short_directory)
    with Installation(short_directory, database_url=database_url, **environment) as made:
        world.build(
            made,
            owner=keys.owner,
            sender=keys.alice,
            commands=(*world.COMMANDS, *_FILE_COMMANDS),
            rules=(*world.RULES, _FILE_RULE),
            accounts=accounts,
        )
        yield made


def test_a_mail_is_answered_over_every_kind_of_tls(
    house: Installation,
    dovecot: DovecotServer,
    smtp_server: SmtpServer,
    accounts: list[dict[str, Any]],
    keys,
):
    users = [account["username"] for account in accounts]
    worker, watcher = house.worker(), house.watcher()
    world.wait_for_first_passes(house, len(users))

    sent = {}
    for number, user in enumerate(users, start=1001):
        message_id, raw = world.signed_request(keys.alice, number)
        sent[number] = message_id
        dovecot.append(user, raw)
    dovecot.append(users[0], _with_attachment(keys.alice))
    wait_until(lambda: len(smtp_server.accepted) > len(users), "the replies", 90)
    for user in users:
        wait_until(lambda user=user: dovecot.messages(user, "Sent"), "the copy in Sent", 60)

    assert worker.stop() == 0, worker.output()
    assert watcher.stop() == 0, watcher.output()
    by_subject = {_subject(accepted): accepted for accepted in smtp_server.accepted}
    _check_reply_with_files(by_subject.pop("Re: A copy"), house)
    _check_replies(by_subject.values(), sent)
    _check_records(house, smtp_server, len(users) + 1)
    for user in users:
        filed = dovecot.messages(user, "Sent")
        assert filed
        assert set(filed) <= {accepted.content for accepted in smtp_server.accepted}


def _with_attachment(sender: Key) -> bytes:
    _, raw = world.signed_mail(
        sender, "please copy", subject="A copy", attachments=[("../report.pdf", _PDF)]
    )
    return raw


def _subject(accepted: Accepted) -> str:
    return str(message_from_bytes(accepted.content, policy=default)["Subject"])


def _check_reply_with_files(accepted: Accepted, house: Installation) -> None:
    """The attachment and its copy came back, and the directory has gone with the pipeline."""
    reply = message_from_bytes(accepted.content, policy=default)
    files = {part.get_filename(): part.get_content() for part in reply.iter_attachments()}
    assert files == {"02-report.pdf": _PDF, "copy.pdf": _PDF}
    assert list((house.directory / "pipelines").iterdir()) == []


def _check_replies(replies: Iterable[Accepted], sent: dict[int, str]) -> None:
    factors = {1001: "7 11 13", 1002: "2 3 167"}
    answered = set()
    for accepted in replies:
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
    records = house.inside(_RECORDS)
    assert records["messages"] == number
    assert records["rules"] == ["execute-permitted"] * number
    assert records["pipelines"] == ["completed"] * number
    assert records["effects"] == ["accepted"] * number
    assert records["log"] is True
    arrived = sorted(accepted.content.hex() for accepted in smtp_server.accepted)
    assert records["payloads"] == arrived, "what was approved is what left, byte for byte"
    assert len({hashlib.sha256(a.content).digest() for a in smtp_server.accepted}) == number

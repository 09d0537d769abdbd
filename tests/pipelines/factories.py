"""A desk as pipelines need it: an owner who signs, an agent's account, a requester who may."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from datetime import timedelta
from email import message_from_bytes
from email.policy import default
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import factory
from django.utils import timezone

from guards import documents
from guards.models import Contact, Identity, PinnedKey
from guards.types import Asker, TrustLevel, TrustReason
from mail.gateways import blobs
from mail.models import Account, Message
from pipelines import specification
from pipelines.models import Command, Mission, Pipeline, Stage
from pipelines.services import commands, missions
from pipelines.types import Job
from tests.guards.factories import ContactFactory, IdentityFactory, PermissionFactory
from tests.keys import Key, sign_detached

OPERATOR = Asker("operator", "ada")

_numbers = count(1)


class AccountFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = Account

    identity = factory.SubFactory(IdentityFactory, reply_policy=Identity.ReplyPolicy.AUTO)
    name = factory.Sequence(lambda n: f"account{n}")
    host = "mail.house.example"
    username = factory.LazyAttribute(lambda row: row.identity.email)
    smtp_host = "mail.house.example"
    state = Account.State.OK


class MessageFactory(factory.django.DjangoModelFactory):
    """A message row; `raw` is put into the store."""

    class Meta:
        model = Message
        exclude = ("raw",)

    raw = factory.Sequence(lambda n: b"From: alice@example.org\r\n\r\nnumber %d\r\n" % n)
    account = factory.SubFactory(AccountFactory)
    number = factory.Sequence(lambda n: n + 1)
    sha256 = factory.LazyAttribute(lambda row: stored(row.raw))
    size = factory.LazyAttribute(lambda row: len(row.raw))
    sender = "alice@example.org"
    subject = "A request"
    message_id = factory.LazyAttribute(lambda row: f"{row.number}@example.org")
    trust_level = TrustLevel.VERIFIED.value
    trust_reason = TrustReason.PINNED_KEY.value
    permission = "rwx"
    action = "execute"
    verdict = "allow"
    rule = "execute-permitted"
    execution = Message.Execution.DUE


class PipelineFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = Pipeline

    message = factory.SubFactory(MessageFactory, execution=Message.Execution.TAKEN)
    identity = factory.LazyAttribute(lambda row: row.message.account.identity)
    requester = factory.LazyAttribute(lambda row: row.message.sender)
    planner = "rule:test"
    pipe = factory.LazyFunction(lambda: {"data": {"text": "hello"}, "files": []})


class StageFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = Stage

    pipeline = factory.SubFactory(PipelineFactory)
    position = 1
    command = "reply"
    runner = "built-in"


def stored(raw: bytes) -> str:
    """Put bytes into the mail store; their name."""
    digest = hashlib.sha256(raw).hexdigest()
    blobs.put_all({digest: raw})
    return digest


def script(directory: Path, name: str, lines: str) -> str:
    """A program of these shell lines; its path."""
    path = directory / name
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return str(path)


def cli(name: str = "greet", **fields: Any) -> dict[str, Any]:
    """A command document of the cli runner that passes every check, until a test changes it."""
    document = {
        "schema": "command/1",
        "name": name,
        "serial": 1,
        "runner": "cli",
        "binary": "echo",
        "output_schema": "text",
        **fields,
    }
    if "steps" in fields:
        del document["binary"]
    return {key: value for key, value in document.items() if value is not ...}


def body(payload: bytes) -> str:
    """The text of a message that left."""
    message = message_from_bytes(payload, policy=default)
    return str(message.get_content()).replace("\r\n", "\n")


@cache
def _signature(key: Key, payload: bytes) -> str:
    """One for all tests that load the same document."""
    return sign_detached(key, payload).decode()


@dataclass
class Owner:
    """The owner, who signs command documents and has them loaded."""

    key: Key
    directory: Path

    def sign(self, document: dict[str, Any]) -> str:
        return _signature(self.key, documents.canonical(document))

    def write(self, document: dict[str, Any], signature: str | None = None) -> Path:
        path = self.directory / f"{document.get('name', 'unnamed')}-{next(_numbers)}.json"
        signature = self.sign(document) if signature is None else signature
        path.write_text(json.dumps({**document, "signature": signature}))
        return path

    def install(self, name: str = "greet", **fields: Any) -> Command:
        """Sign and load a cli command; the row."""
        outcome = commands.load_file(self.write(cli(name, **fields)), by=OPERATOR)
        assert outcome.outcome == "loaded", outcome
        return Command.objects.get(name=name)


@dataclass
class Desk:
    """An agent that may be asked to work, and the requester who may ask."""

    requester: Key
    account: Account = field(default_factory=AccountFactory)

    def __post_init__(self) -> None:
        self.identity: Identity = self.account.identity
        self.contact: Contact = ContactFactory(address=self.requester.email)
        self.permission = PermissionFactory(
            identity=self.identity, contact=self.contact, read=True, write=True, execute=True
        )
        PinnedKey.objects.create(
            contact=self.contact,
            fingerprint=self.requester.fingerprint,
            public_key=self.requester.public,
            expires_at=self.requester.expires,
            pinned_by="operator:ada",
        )

    def raw(self, text: str, *, key: Key | None = None, subject: str = "A request") -> bytes:
        """A PGP/MIME message of the requester that names the agent in its first line."""
        lines = [f"@{self.identity.handle}", *text.splitlines()]
        head_of_part = ["Content-Type: text/plain; charset=utf-8", f"X-Number: {next(_numbers)}"]
        part = "\r\n".join([*head_of_part, "", *lines]) + "\r\n"
        signature = sign_detached(key or self.requester, part.encode())
        head = (
            f"From: {self.requester.email}\r\nTo: {self.identity.email}\r\nSubject: {subject}\r\n"
            f"Message-ID: <{next(_numbers)}@example.org>\r\nMIME-Version: 1.0\r\n"
            'Content-Type: multipart/signed; boundary="b"; micalg=pgp-sha256;\r\n'
            ' protocol="application/pgp-signature"\r\n\r\n'
        )
        return (
            head.encode()
            + b"--b\r\n"
            + part.encode()
            + b"\r\n--b\r\nContent-Type: application/pgp-signature\r\n\r\n"
            + signature
            + b"\r\n--b--\r\n"
        )

    def message(self, text: str, **fields: Any) -> Message:
        """That message, admitted: its execution is due."""
        raw = fields.pop("raw", None) or self.raw(text)
        return MessageFactory(raw=raw, account=self.account, sender=self.requester.email, **fields)


def claude(name: str = "publish", **fields: Any) -> dict[str, Any]:
    """A command document of the claude runner that passes every check, until a test changes it."""
    document = {
        "schema": "command/1",
        "name": name,
        "serial": 1,
        "prompt": "Publish what the contract's arguments say.",
        "args": [{"name": "target", "type": "string", "max_length": 100}],
        "budget": {"rounds": 2, "max_usd": 1.5, "max_turns": 10},
        "project": "web",
        "write_set": ["site"],
        "output_schema": "text",
        **fields,
    }
    return {key: value for key, value in document.items() if value is not ...}


@dataclass
class MissionDesk:
    """A claimed stage of a claude command, and the worker that its mission is for."""

    document: dict[str, Any] = field(default_factory=claude)
    directory: Path = Path("/srv/pipelines/p")
    workplace: Path = Path("/srv/projects/web")
    pipeline: Pipeline = field(default_factory=PipelineFactory)

    def __post_init__(self) -> None:
        name = self.document["name"]
        self.spec = specification.read(self.document)
        Command.objects.update_or_create(
            name=name,
            defaults={"document": self.document, "digest": documents.digest(self.document)},
        )
        self.stage: Stage = StageFactory(
            pipeline=self.pipeline,
            position=self.pipeline.stages.count() + 1,
            command=name,
            digest=documents.digest(self.document),
            runner="claude",
            status=Stage.Status.CLAIMED,
            attempt=1,
            lease_until=timezone.now() + timedelta(minutes=1),
        )

    def job(self, **changes: Any) -> Job:
        fields: dict[str, Any] = {
            "args": {"target": "site"},
            "pipe": json.dumps(self.pipeline.pipe).encode(),
            "pipeline": str(self.pipeline.pk),
            "stage": self.stage.pk,
            "attempt": self.stage.attempt,
            "directory": self.directory,
            "workplace": self.workplace,
            **changes,
        }
        return Job(self.spec, **fields)

    def admit(self, **changes: Any) -> Mission:
        """Open its mission."""
        fields = {"worker": "claude", "pipeline": self.pipeline, **changes}
        return missions.admit(job=fields.pop("job", None) or self.job(), **fields)

    def dispatch(self, mission: Mission | None = None) -> tuple[Mission, Asker]:
        """Open its mission and start a run; the mission, and its worker as an asker."""
        mission, _ = missions.dispatch(mission=mission or self.admit())
        assert mission.token is not None
        return mission, Asker("token", mission.token.prefix)

    def result(self, **fields: Any) -> dict[str, Any]:
        """A result that passes, until a test changes it; `...` leaves a key out."""
        document = {
            "verdict": "pass",
            "confidence": 0.9,
            "prose": "It is published.",
            "output": "published",
            "files_changed": ["site/index.html"],
            **fields,
        }
        return {key: value for key, value in document.items() if value is not ...}

    def worked(self, **fields: Any) -> Mission:
        """A mission whose first round has this result."""
        mission, worker = self.dispatch()
        missions.submit_result(mission_id=mission.pk, document=self.result(**fields), by=worker)
        return mission

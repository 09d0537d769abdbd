"""An installation with one agent, one sender who may execute, and two signed commands."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from email.message import EmailMessage
from email.policy import SMTP
from pathlib import Path
from typing import Any

from tests.keys import Key, public_key, sign_detached
from tests.servers import Installation
from tests.servers.presence import wait_until

AGENT = "agent@house.example"
SENDER = "olga@example.org"

COMMANDS: tuple[dict[str, Any], ...] = (
    {
        "schema": "command/1",
        "name": "factor",
        "serial": 1,
        "runner": "cli",
        "binary": "factor",
        "end_of_options": True,
        "args": [{"name": "number", "type": "integer", "required": True, "position": 0}],
        "output_schema": "text",
    },
    {
        "schema": "command/1",
        "name": "sentence",
        "serial": 1,
        "runner": "cli",
        "binary": "printf",
        "fixed_args": ["The factors are %s"],
        "args": [{"name": "r", "type": "string", "position": 0, "from_pipe": "/data"}],
        "output_schema": "text",
    },
)

RULES: tuple[dict[str, Any], ...] = (
    {
        "name": "factor",
        "kind": "regex",
        "match": r"factor (?P<n>[0-9]+)",
        "calls": [
            {"command": "factor", "args": {"number": {"group": "n", "type": "integer"}}},
            {"command": "sentence", "args": {}},
        ],
    },
)

_BUILD = """
from approvals.services import artifacts
from guards import secrets
from guards.services import contacts, identities, keys
from guards.types import Asker, Rwx
from pathlib import Path
from pipelines.services import commands, rules
from teams.services import checkpoints

by = Asker("operator", "test")
artifacts.ensure_key(); checkpoints.ensure_key()
agent = identities.create_identity(
    handle="agent", email=agent_address, reply_policy="auto", is_default=True, by=by
)
contact = contacts.add_contact(address=sender, grants={agent: Rwx.parse("rwx")}, by=by)
keys.pin_key(contact=contact, key=sender_key.encode(), by=by)
outcomes = commands.load_directory(Path(command_directory), by=by)
for rule in planning_rules:
    rules.save_rule(by=by, **rule)
for name, value in kept_secrets.items():
    secrets.store(name, value)
answer = [f"{o.name}: {o.outcome} {o.detail}" for o in outcomes]
"""

_ADD_ACCOUNTS = """
from guards import secrets
from guards.models import Identity
from guards.types import Asker
from mail.services import accounts

for fields in mailboxes:
    accounts.create_account(
        identity=Identity.objects.get(handle="agent"),
        secret_ref=secrets.store("imap-" + fields["name"], fields.pop("imap_password")),
        smtp_secret_ref=secrets.store("smtp-" + fields["name"], smtp_password),
        by=Asker("operator", "test"), **fields,
    )
"""


def owner_environment(owner: Key, directory: Path) -> dict[str, str]:
    """Settings that name the owner of commands."""
    path = directory / "owner.asc"
    path.write_bytes(public_key(owner, armor=True))
    return {"OWNER_FINGERPRINT": owner.fingerprint, "OWNER_KEY_FILE": str(path)}


def build(
    installation: Installation,
    *,
    owner: Key,
    sender: Key,
    commands: Sequence[Mapping[str, Any]] = COMMANDS,
    rules: Sequence[Mapping[str, Any]] = RULES,
    secrets: Mapping[str, str] = {},
    accounts: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Identity, contact with its pinned key, commands signed by the owner, rules, mailboxes."""
    from guards import documents

    directory = installation.directory / "commands"
    directory.mkdir()
    for document in commands:
        signature = sign_detached(owner, documents.canonical(document)).decode()
        signed = json.dumps({**document, "signature": signature})
        (directory / f"{document['name']}.yaml").write_text(signed)
    loaded = installation.inside(
        _BUILD + _ADD_ACCOUNTS,
        agent_address=AGENT,
        sender=SENDER,
        sender_key=public_key(sender, armor=True).decode(),
        command_directory=str(directory),
        planning_rules=list(rules),
        kept_secrets=dict(secrets),
        **_mailboxes(accounts),
    )
    assert all(": loaded" in line for line in loaded), loaded


def add_account(installation: Installation, **fields: Any) -> None:
    """One mailbox of the agent more."""
    installation.inside(_ADD_ACCOUNTS, **_mailboxes([fields]))


def _mailboxes(accounts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What `_ADD_ACCOUNTS` wants; the servers' certificates are self-made."""
    from tests.servers.smtp import PASSWORD, USER

    usual = {
        "smtp_username": USER,
        "tls_skip_verify": True,
        "poll_interval": "1m",
        "sent_folder": "Sent",
    }
    return {"mailboxes": [{**usual, **fields} for fields in accounts], "smtp_password": PASSWORD}


def wait_for_first_passes(installation: Installation, number: int) -> None:
    """Until that many accounts may start work."""
    query = "SELECT count(*) FROM mail_foldercursor WHERE first_pass_done"
    wait_until(lambda: installation.rows(query)[0][0] >= number, "the first passes", 60)


def signed_request(sender: Key, number: int) -> tuple[str, bytes]:
    """A signed mail that asks for a number's factors; its Message-ID and its bytes."""
    earlier = f"<an-earlier-one-{number}@example.org>"
    return signed_mail(
        sender, f"please factor {number}", subject=f"The factors of {number}", references=earlier
    )


def signed_mail(
    sender: Key,
    text: str,
    *,
    subject: str,
    references: str = "",
    attachments: Sequence[tuple[str, bytes]] = (),
) -> tuple[str, bytes]:
    """A signed mail to the agent; its Message-ID and its bytes."""
    message_id = f"<{uuid.uuid4()}@example.org>"
    head = EmailMessage(policy=SMTP)
    head["From"] = f"Olga <{SENDER}>"
    head["To"] = AGENT
    head["Subject"] = subject
    head["Message-ID"] = message_id
    if references:
        head["References"] = references
    head["MIME-Version"] = "1.0"
    lines = "\r\n".join(f"@agent {text}".splitlines())
    part = f"Content-Type: text/plain; charset=utf-8\r\n\r\n{lines}\r\n".encode()
    if attachments:
        whole = EmailMessage(policy=SMTP)
        whole.set_content(f"{lines}\r\n")
        for name, content in attachments:
            whole.add_attachment(content, maintype="application", subtype="pdf", filename=name)
        part = whole.as_bytes()
    signature = sign_detached(sender, part, hash="SHA256").replace(b"\n", b"\r\n")
    raw = (
        head.as_bytes().rstrip(b"\r\n")
        + b'\r\nContent-Type: multipart/signed; micalg="pgp-sha256";'
        + b'\r\n protocol="application/pgp-signature"; boundary="b1"\r\n\r\n'
        + b"--b1\r\n"
        + part
        + b"\r\n--b1\r\nContent-Type: application/pgp-signature\r\n\r\n"
        + signature
        + b"\r\n--b1--\r\n"
    )
    return message_id, raw

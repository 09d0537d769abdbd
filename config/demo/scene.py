"""Builds the demo's world through the services, as an operator would; twice adds nothing."""

from __future__ import annotations

import json

import yaml

from approvals.services import artifacts
from config.demo import cast
from config.demo.world import World
from config.embedded_mail import LOOPBACK, Ports
from guards import documents, secrets
from guards.models import Contact, Identity
from guards.services import contacts, identities, keys
from guards.types import Asker, Rwx
from mail.models import Account
from mail.services import accounts
from mail.types import Provider
from pipelines.models import Rule
from pipelines.services import commands, rules
from teams.services import checkpoints

OPERATOR = Asker("operator", "demo")


class DemoCommandRefused(Exception):
    """A command of the demo did not load."""


def build(world: World, ports: Ports) -> None:
    """Identities, contacts with pinned keys, accounts, the rule and the signed commands.

    DemoCommandRefused, when all else is there, where another owner signs commands here.
    """
    artifacts.ensure_key()
    checkpoints.ensure_key()
    for agent in cast.AGENTS:
        _identity(agent)
    for person in cast.CONTACTS:
        _contact(world, person)
    for address, name in cast.ACCOUNTS.items():
        _account(world, ports, address, name)
    if not Rule.objects.filter(name=cast.RULE["name"]).exists():
        rules.save_rule(**cast.RULE, by=OPERATOR)
    _load_commands(world)


def _identity(agent: cast.Agent) -> None:
    if Identity.objects.filter(handle=agent.handle).exists():
        return
    is_first = agent is cast.ADA and not Identity.objects.filter(is_default=True).exists()
    identities.create_identity(
        handle=agent.handle,
        name=agent.name,
        email=agent.address,
        reply_policy=Identity.ReplyPolicy(agent.reply_policy),
        is_default=is_first,
        by=OPERATOR,
    )


def _contact(world: World, person: cast.Person) -> None:
    if Contact.objects.filter(address=person.address).exists():
        return
    contact = contacts.add_contact(
        address=person.address,
        name=person.name,
        grants={
            Identity.objects.get(handle=handle): Rwx.parse(rights)
            for handle, rights in person.rights.items()
        },
        by=OPERATOR,
    )
    if person.signs:
        keys.pin_key(contact=contact, key=world.key_of(person).public_key, by=OPERATOR)


def _account(world: World, ports: Ports, address: str, name: str) -> None:
    existing = Account.objects.filter(name=name).first()
    if existing is not None:
        if (existing.port, existing.smtp_port) != (ports.imap, ports.smtp):
            accounts.update_account(
                account_id=existing.pk, port=ports.imap, smtp_port=ports.smtp, by=OPERATOR
            )
        return
    is_bridge = address == cast.BRIDGE
    accounts.create_account(
        identity=Identity.objects.get(handle="bruno" if name == "bruno" else "ada"),
        name=name,
        provider=(Provider.PROTON_BRIDGE if is_bridge else Provider.GENERIC).value,
        host=LOOPBACK,
        port=ports.imap,
        username=address,
        secret_ref=secrets.store(f"demo-{name}", world.password(address)),
        sent_folder="Sent",
        smtp_host=LOOPBACK,
        smtp_port=ports.smtp,
        poll_interval=Account.Interval.M1.value,
        by=OPERATOR,
    )


def _load_commands(world: World) -> None:
    owner = world.owner()
    world.commands.mkdir(mode=0o700, exist_ok=True)
    for document in cast.COMMANDS:
        path = world.commands / f"{document['name']}.yaml"
        if not path.exists():
            signature = owner.sign(documents.canonical(document)).armored.decode()
            path.write_text(
                yaml.safe_dump({**document, "signature": signature}, sort_keys=False),
                encoding="utf-8",
            )
    outcomes = commands.load_directory(world.commands, by=OPERATOR)
    refused = [o for o in outcomes if o.outcome not in ("loaded", "unchanged")]
    if refused:
        raise DemoCommandRefused(json.dumps([f"{o.file}: {o.detail}" for o in refused]))

"""Where the demo keeps its things, and what its processes must know: owner's key, mailboxes."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from config.demo import cast
from config.demo.keys import KeyPair, key_pair
from config.embedded_mail import Mailbox, write_mailboxes


@dataclass(frozen=True, slots=True)
class World:
    """Everything of the demo below one directory of the data directory."""

    directory: Path

    @property
    def mail(self) -> Path:
        """The embedded mail server's directory: mailboxes, ports, certificate, journal."""
        return self.directory / "mail"

    @property
    def journal(self) -> Path:
        """What the embedded server accepted by SMTP."""
        return self.mail / "accepted.jsonl"

    @property
    def commands(self) -> Path:
        """The signed command files."""
        return self.directory / "commands"

    def owner(self) -> KeyPair:
        """The demo owner's key pair, made at the first call."""
        return key_pair(self.directory / "owner", name="Demo owner", address=f"owner@{cast.DOMAIN}")

    def key_of(self, person: cast.Person) -> KeyPair:
        """A person's key pair, made at the first call."""
        home = self.directory / "people" / person.handle
        return key_pair(home, name=person.name, address=person.address)

    def owner_settings(self) -> dict[str, str]:
        """The settings that name the demo's owner to every process."""
        owner = self.owner()
        path = self.directory / "owner.asc"
        path.write_bytes(owner.public_key)
        return {"OWNER_FINGERPRINT": owner.fingerprint, "OWNER_KEY_FILE": str(path)}

    def mailboxes(self) -> list[Mailbox]:
        """The mailboxes with their passwords, drawn at the first call."""
        if not (self.mail / "mailboxes.json").exists():
            addresses = [who.address for who in (*cast.AGENTS, *cast.PEOPLE)]
            boxes = [Mailbox(address, secrets.token_urlsafe(12)) for address in addresses]
            boxes.append(Mailbox(cast.BRIDGE, secrets.token_urlsafe(12), takes_smtp=False))
            write_mailboxes(self.mail, boxes)
        from config.embedded_mail import read_mailboxes

        return read_mailboxes(self.mail)

    def password(self, address: str) -> str:
        """A mailbox's password."""
        return next(box.password for box in self.mailboxes() if box.address == address)

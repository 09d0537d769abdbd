"""A kind of act that counts its contacts in a file, with a switch for every outcome."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from approvals.registry import NOTHING, ActDefaults
from approvals.types import Act, ContactOutcome, ContactResult, Frozen, Grant
from guards.types import Subject

ACCEPT = ContactResult(ContactOutcome.ACCEPTED, "smtp-250")


@dataclass
class CountingKind(ActDefaults):
    """Every contact is one line in `ledger`, written by whichever process made it.

    `result` is what a contact brings; an exception is raised. `before` and `after` run around the
    contact, for kills. `drifted` is what a recheck finds. `seen` is what a read-back brings.
    """

    ledger: Path
    name: str = "tests.counting"
    label: str = "counted act"
    outcomes: frozenset[ContactOutcome] = frozenset(ContactOutcome)
    result: ContactResult | BaseException = ACCEPT
    seen: ContactResult | BaseException | None = None
    drifted: str | None = None
    body: bytes = b"exactly these bytes"
    revision: int = 1
    before: Callable[[], None] = lambda: None
    after: Callable[[], None] = lambda: None
    frozen: list[str] = field(default_factory=list)

    def freeze(self, subject: Subject, grant: Grant = NOTHING) -> Frozen:
        """The subject as it stands now."""
        self.frozen.append(subject.id)
        facts = {
            "revision": self.revision,
            "to": "owner@example.org",
            "message_id": f"{subject.id}@x",
        }
        return Frozen(self.body, facts, {"to": ["owner@example.org"], "text": self.body.decode()})

    def recheck_in_writer(self, subject: Subject, facts: Mapping[str, object]) -> str | None:
        """The switch, or the revision where it moved on."""
        if self.drifted:
            return self.drifted
        return None if facts["revision"] == self.revision else "revision"

    def contact(self, act: Act) -> ContactResult:
        """One line in the ledger: what the provider would have seen."""
        self.before()
        line = f"{act.subject.id} {act.facts['message_id']} {act.payload.decode()}\n".encode()
        descriptor = os.open(self.ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, line)
        os.close(descriptor)
        self.after()
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result

    def readback(self, act: Act) -> ContactResult | None:
        """The switch."""
        if isinstance(self.seen, BaseException):
            raise self.seen
        return self.seen

    def contacts(self, subject: Subject | None = None) -> list[str]:
        """What the provider saw, of one subject or of all."""
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        return [line for line in lines if subject is None or line.split(" ")[0] == subject.id]


@dataclass(slots=True)
class GateKind:
    """A permission: somebody waits at a gate until a person says yes to exactly this."""

    name: str = "tests.gate"
    label: str = "counted gate"
    validity: timedelta = timedelta(days=7)
    body: bytes = b"exactly this"
    drifted: str | None = None

    def freeze(self, subject: Subject, grant: Grant = NOTHING) -> Frozen:
        """The subject as it stands now."""
        return Frozen(self.body, {"who": subject.id}, {"tool": "Bash", "text": self.body.decode()})

    def recheck_in_writer(self, subject: Subject, facts: Mapping[str, object]) -> str | None:
        """The switch."""
        return self.drifted

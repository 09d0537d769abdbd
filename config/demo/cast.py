"""Who plays in the demo, what each may ask, and the two commands that the owner signed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

DOMAIN = "demo.test"


@dataclass(frozen=True, slots=True)
class Agent:
    """An identity of this installation; `reply_policy` is `auto` or `approve`."""

    handle: str
    name: str
    reply_policy: str

    @property
    def address(self) -> str:
        """Its address in the demo's own mail domain."""
        return f"{self.handle}@{DOMAIN}"


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who writes: `rights` maps an agent's handle to `rwx`, `signs` means a pinned key."""

    handle: str
    name: str
    rights: dict[str, str] = field(default_factory=dict)
    signs: bool = False

    @property
    def address(self) -> str:
        """The address in the demo's own mail domain."""
        return f"{self.handle}@{DOMAIN}"


ADA = Agent("ada", "Ada, who answers at once", "auto")
BRUNO = Agent("bruno", "Bruno, whose replies wait for you", "approve")
AGENTS = (ADA, BRUNO)

OLGA = Person("olga", "Olga, who may execute", {"ada": "rwx", "bruno": "rwx"}, signs=True)
RITA = Person("rita", "Rita, who may only be read", {"ada": "r--"}, signs=True)
PETRA = Person("petra", "Petra, inside the same provider", {"ada": "r--"})
STRANGER = Person("stranger", "Somebody nobody knows")
CONTACTS = (OLGA, RITA, PETRA)
PEOPLE = (*CONTACTS, STRANGER)

#: Ada's second mailbox, declared a bridge on loopback: only there provider headers count.
BRIDGE = f"ada.bridge@{DOMAIN}"

#: The name of the account of each mailbox that is watched.
ACCOUNTS = {ADA.address: "ada", BRUNO.address: "bruno", BRIDGE: "ada-bridge"}

COMMANDS: tuple[dict[str, Any], ...] = (
    {
        "schema": "command/1",
        "name": "factor",
        "serial": 1,
        "runner": "cli",
        "description": "Find the prime factors of a whole number.",
        "binary": "factor",
        "end_of_options": True,
        "args": [{"name": "number", "type": "integer", "required": True, "position": 0}],
        "output_schema": "text",
        "timeout": "10s",
    },
    {
        "schema": "command/1",
        "name": "sentence",
        "serial": 1,
        "runner": "cli",
        "description": "Put the result into a sentence.",
        "binary": "printf",
        "fixed_args": ["The number and its prime factors are %s"],
        "args": [
            {
                "name": "result",
                "type": "string",
                "required": True,
                "max_length": 500,
                "position": 0,
                "from_pipe": "/data",
            }
        ],
        "output_schema": "text",
        "timeout": "10s",
    },
)

#: What plans the two commands from a letter such as "please factor 1001".
RULE: dict[str, Any] = {
    "name": "factor-a-number",
    "kind": "regex",
    "match": r"factor (?P<number>[0-9]{1,15})\b",
    "calls": [
        {"command": "factor", "args": {"number": {"group": "number", "type": "integer"}}},
        {"command": "sentence", "args": {}},
    ],
}

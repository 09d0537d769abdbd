"""Who judges a mission, and by which checks: pinned when it opens, compared when it closes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from guards import documents
from guards.types import SYSTEM
from pipelines import registry
from pipelines.models import Command
from pipelines.services import rows
from pipelines.types import CommandSpec

#: The evaluator is the program itself: it looks at the result and at the directory.
EVALUATOR = str(SYSTEM)

#: What the gate looks at, in its order. A change of meaning takes a new version.
CHECKS_VERSION = "gate/1"
CHECKS = (
    "evaluator-is-not-the-worker",
    "command-as-admitted",
    "result-of-this-round",
    "verdict-pass",
    "changed-paths-inside-write-set",
)


def checks_digest(*, command: str, digest: str, criteria: Mapping[str, Any]) -> str:
    """SHA-256 over what is checked: the gate's version, the command's signed form, the criteria."""
    pinned = {
        "evaluator": EVALUATOR,
        "version": CHECKS_VERSION,
        "checks": CHECKS,
        "command": command,
        "digest": digest,
        "criteria": criteria,
    }
    form = json.dumps(pinned, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(form.encode()).hexdigest()


def signed_digest(spec: CommandSpec) -> str:
    """The digest of the document that a command was read from; "" for a built-in one."""
    built_in = registry.built_in(spec.name) is not None
    return "" if built_in else documents.digest(spec.document)


def present_digest(command: str) -> str | None:
    """The digest of the command's document as it stands now; None when it is gone.

    A built-in command has no document, and the digest "".
    """
    if registry.built_in(command) is not None:
        return ""
    found = rows.find(Command, where={"name": command})
    return documents.digest(found[0].document) if found else None

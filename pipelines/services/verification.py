"""May this command run now? Asked at planning and again at each execution (DES-034, DES-035).

The signature is checked over the row as it is at that moment, so that writing to the database runs
nothing that the owner did not sign. A good answer is remembered in this process for at most 60 s,
for exactly that document, signature and owner key: a withdrawn or expired key is noticed within
that time.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils import timezone

from guards import documents
from guards.exceptions import (
    BinaryNotAllowed,
    CountersignError,
    DocumentNotSigned,
    NoOwnerKey,
    OwnerKeyInvalid,
)
from pipelines import registry, specification
from pipelines.exceptions import (
    CommandNotRunnable,
    DocumentInvalid,
    OptionNotAllowed,
    RunnerMissing,
)
from pipelines.models import Command
from pipelines.services.rows import Answer, Message
from pipelines.types import CommandSpec, RunRule

#: Seconds that a good answer may be old (invariant 13).
REMEMBERED_SECONDS = 60.0

#: The rules that are a verdict about the signature itself.
SIGNATURE_RULES = frozenset(
    {RunRule.MISSING, RunRule.INVALID, RunRule.WRONG_KEY, RunRule.EXPIRED_KEY}
)

_REMEMBERED_AT_MOST = 1024
_good_until: dict[tuple[str, ...], float] = {}
_readings: dict[str, CommandSpec] = {}


def runnable(command: Command, *, planned_digest: str | None = None) -> CommandSpec:
    """The command as it may run now; CommandNotRunnable names the rule that forbids it.

    `planned_digest` is the digest that was frozen when the pipeline was planned: another document
    under the same name is not what was planned.
    """
    digest = documents.digest(command.document)
    _check_signature(command, digest)
    spec = _read(command, digest)
    _check_standing(command, spec)
    if digest != command.digest or planned_digest not in (None, digest):
        raise _refusal(
            command.name, RunRule.CHANGED, "the document is not the one that was planned"
        )
    _check_runner(spec)
    return spec


def find_runnable(name: str, *, planned_digest: str | None = None) -> tuple[CommandSpec, str]:
    """The command of that name as it may run now, with its digest."""
    message = Message()
    found = ask_for(message, [name])
    message.send()
    return runnable_of(found.value, name, planned_digest=planned_digest)


def ask_for(message: Message, names: Collection[str]) -> Answer[list[Command]]:
    """The commands of those names, for `runnable_of`."""
    return message.find(Command, where={"name": names})


def runnable_of(
    found: Collection[Command], name: str, *, planned_digest: str | None = None
) -> tuple[CommandSpec, str]:
    """The command of that name among those that were just read, as `find_runnable`."""
    command = next((one for one in found if one.name == name), None)
    if command is None:
        raise _refusal(name, RunRule.GONE, "there is no such command")
    return runnable(command, planned_digest=planned_digest), command.digest


def ask_whether_it_stands(message: Message, spec: CommandSpec, digest: str) -> Answer[bool]:
    """Whether the command that was looked at a moment ago is still the last one loaded, and valid.

    To be asked inside of the transaction that begins with it.
    """
    where = {
        "name": spec.name,
        "digest": digest,
        "highest_serial": spec.serial,
        "highest_digest": ("", digest),
    }
    is_past = _is_past(spec.valid_until, timezone.now())
    return message.find_some(Command, where={**where, **({"pk": []} if is_past else {})})


def signature_of(command: Command) -> str:
    """What the signature over the row is worth now: `ok`, or why not, as the dry run says it.

    `operational`: no owner is configured, or it could not be looked at.
    """
    try:
        _check_signature(command, documents.digest(command.document))
    except CommandNotRunnable as error:
        return error.rule if error.rule in SIGNATURE_RULES else "operational"
    except CountersignError:
        return "invalid"
    return "ok"


def forget() -> None:
    """Drop every remembered answer of this process."""
    _good_until.clear()


def _check_signature(command: Command, digest: str) -> None:
    key = (digest, hashlib.sha256(command.signature.encode()).hexdigest(), *_owner_key_identity())
    if _good_until.get(key, 0.0) > time.monotonic():
        return
    started = time.monotonic()
    try:
        documents.verify_document(command.document, command.signature)
    except DocumentNotSigned as error:
        raise _refusal(command.name, RunRule(error.reason), error.detail) from error
    except NoOwnerKey as error:
        raise _refusal(command.name, RunRule.NO_OWNER_KEY, error.detail) from error
    except OwnerKeyInvalid as error:
        raise _refusal(command.name, RunRule.OWNER_KEY_INVALID, error.detail) from error
    except CountersignError as error:
        raise _refusal(command.name, RunRule.NOT_CHECKED, error.detail) from error
    if len(_good_until) >= _REMEMBERED_AT_MOST:
        _good_until.clear()
    _good_until[key] = started + REMEMBERED_SECONDS


def _owner_key_identity() -> tuple[str, ...]:
    """What names the owner's key right now: the settings and the key file's own identity."""
    try:
        status = Path(settings.OWNER_KEY_FILE).stat()
        file = f"{status.st_dev}:{status.st_ino}:{status.st_mtime_ns}:{status.st_size}"
    except OSError:
        file = ""
    return (
        settings.OWNER_FINGERPRINT,
        settings.OWNER_HANDLE,
        str(settings.OWNER_KEY_FILE),
        file,
    )


def _read(command: Command, digest: str) -> CommandSpec:
    try:
        spec = _reading(digest, command.document)
    except DocumentInvalid as error:
        raise _refusal(command.name, RunRule.SCHEMA, error.detail) from error
    if spec.name != command.name:
        raise _refusal(command.name, RunRule.CHANGED, f"the signed name is {spec.name}")
    return spec


def _reading(digest: str, document: Mapping[str, Any]) -> CommandSpec:
    """The same signed form is always the same command: it is read once per process."""
    found = _readings.get(digest)
    if found is None:
        found = specification.read(document)
        if len(_readings) >= _REMEMBERED_AT_MOST:
            _readings.clear()
        _readings[digest] = found
    return found


def _check_standing(command: Command, spec: CommandSpec) -> None:
    if _is_past(spec.valid_until, timezone.now()):
        raise _refusal(
            spec.name, RunRule.PAST_VALID_UNTIL, f"it was valid until {spec.valid_until}"
        )
    if spec.serial < command.highest_serial:
        raise _refusal(
            spec.name,
            RunRule.SUPERSEDED,
            f"serial {spec.serial} was replaced by {command.highest_serial}",
        )
    if spec.serial == command.highest_serial and command.highest_digest not in ("", command.digest):
        raise _refusal(
            spec.name,
            RunRule.SUPERSEDED,
            f"serial {spec.serial} was loaded with another content",
        )


def _is_past(moment: datetime | None, now: datetime) -> bool:
    return moment is not None and moment <= now


def _check_runner(spec: CommandSpec) -> None:
    """A program outside the allow-list is refused; a runner that is missing fails its stage."""
    try:
        registry.runner(spec.runner).check(spec)
    except RunnerMissing:
        return
    except BinaryNotAllowed as error:
        raise _refusal(spec.name, RunRule.BINARY, error.detail) from error
    except OptionNotAllowed as error:
        raise _refusal(spec.name, RunRule.OPTION, f"{error.field}: {error.detail}") from error


def _refusal(name: str, rule: RunRule, detail: str) -> CommandNotRunnable:
    return CommandNotRunnable(f"{name}: {detail}", field="command", rule=rule.value)

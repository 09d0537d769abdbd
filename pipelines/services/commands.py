"""Commands come in: files are loaded, signatures taken back, every refusal says where and why.

The signature is looked at before the schema, so that a tampered file is called tampered. A refused
file never replaces a command that is signed; alone, it stays visible with its reason, and never
runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog
from django.utils import timezone

from guards import documents
from guards.exceptions import (
    Conflict,
    CountersignError,
    DocumentNotSigned,
    InvalidInput,
    NoOwnerKey,
    NotFound,
)
from guards.services.units import unit_of_work
from guards.types import Asker, Subject
from pipelines import reading, registry, specification
from pipelines.exceptions import (
    DocumentInvalid,
    DocumentUnreadable,
    OptionNotAllowed,
    RunnerMissing,
    SerialRefused,
)
from pipelines.models import Command
from pipelines.types import CommandSpec, LoadCause, LoadOutcome, LoadResult
from teams.services import events

log = structlog.get_logger(__name__)

#: Documents that may get a row at all: the name is the row's key.
_NAME = re.compile(r"\A[a-z0-9][a-z0-9_-]{0,63}\Z")

_STATES = {
    "missing": Command.SignatureState.MISSING,
    "invalid": Command.SignatureState.INVALID,
    "wrong-key": Command.SignatureState.WRONG_KEY,
    "expired-key": Command.SignatureState.EXPIRED_KEY,
}


def load_directory(path: Path, *, by: Asker) -> list[LoadOutcome]:
    """Load every command file directly inside a directory, each on its own, in order of name.

    NotFound for a path that is no directory. One file's fault stops no other.
    """
    if not path.is_dir():
        raise NotFound(f"{path} is not a directory", field="path")
    seen: set[str] = set()
    outcomes = []
    for file in sorted(path.iterdir()):
        if file.suffix in reading.SUFFIXES and file.is_file():
            outcome = load_file(file, by=by, taken=frozenset(seen))
            seen.add(outcome.name)
            outcomes.append(outcome)
    return outcomes


def load_file(file: Path, *, by: Asker, taken: frozenset[str] = frozenset()) -> LoadOutcome:
    """Load one command file; `taken` are names that other files of the same directory have used."""
    try:
        document, signature = reading.split_signature(reading.read_file(file))
    except DocumentUnreadable as error:
        return _rejected(LoadOutcome(str(file), "", LoadResult.REJECTED, LoadCause.FORM), error, by)
    except OSError as error:
        outcome = LoadOutcome(str(file), "", LoadResult.OPERATIONAL, LoadCause.FILE)
        return replace(outcome, detail=f"cannot be read: {error.strerror}")
    name = document.get("name")
    outcome = LoadOutcome(str(file), name if isinstance(name, str) else "", LoadResult.LOADED)
    if outcome.name and outcome.name in taken:
        twice = DocumentInvalid(f"another file of this directory is {name}", field="name")
        return _rejected(replace(outcome, cause=LoadCause.SCHEMA), twice, by)
    return _take(document, signature, outcome, by)


def accept_signature(*, name: str, signature: str, by: Asker) -> Command:
    """Take a signature, made elsewhere, back onto the command of that name: onto its draft if any.

    The document stays as it is; a signed draft takes the place of what was signed before.
    DocumentNotSigned, DocumentInvalid, SerialRefused or an operational error refuse it, and the row
    keeps what it had.
    """
    command = Command.objects.filter(name=name).first()
    if command is None:
        raise NotFound(f"there is no command {name}", field="name")
    if not signature.strip():
        raise InvalidInput("the signature is empty", field="signature")
    document = document_to_sign(command)
    documents.verify_document(document, signature)
    spec = specification.read(document)
    if spec.name != name:
        raise DocumentInvalid(f"the document is of the command {spec.name}", field="name")
    check_runner(spec)
    source = command.loaded_from if command.draft is None else "the console"
    _store(spec, signature, source=source, by=by)
    command.refresh_from_db()
    return command


def document_to_sign(command: Command) -> Mapping[str, Any]:
    """What a signature is wanted over: the draft, or the document where there is none."""
    document: Mapping[str, Any] = command.document if command.draft is None else command.draft
    return document


def remove_refused(*, name: str, by: Asker) -> None:
    """Take a command away that was never loaded: a refused file that nobody will sign.

    NotFound, or Conflict for one that was signed once: its serial has to be remembered.
    """
    with unit_of_work():
        row = Command.objects.select_for_update().filter(name=name).first()
        if row is None:
            raise NotFound(f"there is no command {name}", field="name")
        if row.highest_serial:
            raise Conflict(f"{name} was signed once, so its serial is kept; its file may go")
        events.append_event(
            kind="command.removed",
            subject=Subject("pipelines.command", str(row.pk)),
            actor=str(by),
            facts={"name": name, "digest": row.digest},
        )
        row.delete()


def check_runner(spec: CommandSpec) -> None:
    """BinaryNotAllowed, OptionNotAllowed for what may not run; a missing runner may come later."""
    try:
        runner = registry.runner(spec.runner)
    except RunnerMissing:
        return
    runner.check(spec)


def _take(
    document: Mapping[str, Any], signature: str, outcome: LoadOutcome, by: Asker
) -> LoadOutcome:
    """Signature, then schema, then programs, then serial; the first that fails names the cause."""
    cause = LoadCause.FORM
    try:
        outcome = replace(outcome, digest=documents.digest(document))
        cause = LoadCause.SIGNATURE
        documents.verify_document(document, signature)
        cause = LoadCause.SCHEMA
        spec = specification.read(document)
        cause = LoadCause.BINARY
        check_runner(spec)
        cause = LoadCause.SERIAL
        _store(spec, signature, source=outcome.file, by=by)
    except (DocumentNotSigned, DocumentInvalid, SerialRefused) as error:
        _show_refused(document, signature, outcome, error)
        return _rejected(replace(outcome, cause=cause), error, by)
    except CountersignError as error:
        _show_refused(document, signature, outcome, error)
        if cause is LoadCause.SIGNATURE:
            return _operational(outcome, error)
        if isinstance(error, OptionNotAllowed):
            cause = LoadCause.OPTION
        return _rejected(replace(outcome, cause=cause), error, by)
    return outcome


def _store(spec: CommandSpec, signature: str, *, source: str, by: Asker) -> None:
    """Write a command that passed every check; SerialRefused keeps what was there."""
    digest = documents.digest(spec.document)
    with unit_of_work():
        existing = Command.objects.select_for_update().filter(name=spec.name).first()
        settled: dict[str, Any] = {}
        if existing is not None:
            check_serial(spec.serial, digest, existing)
            if existing.draft is not None and documents.digest(existing.draft) == digest:
                settled = {"draft": None, "draft_text": "", "draft_by": "", "draft_at": None}
        command, _ = Command.objects.update_or_create(
            name=spec.name,
            defaults={
                "document": dict(spec.document),
                "signature": signature,
                "digest": digest,
                "serial": spec.serial,
                "highest_serial": spec.serial,
                "highest_digest": digest,
                "runner": spec.runner,
                "description": spec.description,
                "signature_state": Command.SignatureState.OK,
                "signature_detail": "",
                "checked_at": timezone.now(),
                "loaded_from": source[:500],
                **settled,
            },
        )
        events.append_event(
            kind="command.loaded",
            subject=Subject("pipelines.command", str(command.pk)),
            actor=str(by),
            facts={"name": spec.name, "serial": spec.serial, "digest": digest},
        )


def check_serial(serial: int, digest: str, existing: Command) -> None:
    """SerialRefused for a serial that went back, or that was seen with another content."""
    if serial < existing.highest_serial:
        raise SerialRefused(
            f"serial {serial} is lower than {existing.highest_serial}, which was seen before",
            field="serial",
            rule="serial-went-back",
        )
    if serial == existing.highest_serial and digest != existing.highest_digest:
        raise SerialRefused(
            f"serial {serial} was seen before with another content; raise it",
            field="serial",
            rule="serial-reused",
        )


def _show_refused(
    document: Mapping[str, Any], signature: str, outcome: LoadOutcome, error: CountersignError
) -> None:
    """Keep a refused document visible, where no signed command of its name stands."""
    if not _NAME.match(outcome.name) or not outcome.digest:
        return
    reason = error.reason if isinstance(error, DocumentNotSigned) else ""
    runner = document.get("runner")
    description = document.get("description")
    shown = {
        "document": dict(document),
        "signature": signature,
        "digest": outcome.digest,
        "runner": runner if runner in ("cli", "claude") else "claude",
        "description": description if isinstance(description, str) else "",
        "signature_state": _STATES.get(reason, Command.SignatureState.OPERATIONAL),
        "signature_detail": error.detail[:500],
        "checked_at": timezone.now(),
        "loaded_from": outcome.file[:500],
    }
    with unit_of_work():
        Command.objects.get_or_create(name=outcome.name, defaults=shown)
        Command.objects.filter(name=outcome.name, highest_serial=0).update(**shown)


def _rejected(outcome: LoadOutcome, error: CountersignError, by: Asker) -> LoadOutcome:
    log.warning("command refused", file=outcome.file, cause=outcome.cause, detail=error.detail)
    refused = replace(
        outcome,
        outcome=LoadResult.REJECTED,
        reason=error.rule or error.code,
        field=error.field,
        detail=error.detail,
    )
    with unit_of_work():
        row = Command.objects.filter(name=refused.name).values_list("pk", flat=True).first()
        events.append_event(
            kind="command.refused",
            subject=Subject("pipelines.command", str(row or refused.name[:64] or "unnamed")),
            actor=str(by),
            facts={
                "file": refused.file,
                "cause": str(refused.cause),
                "reason": refused.reason,
                "detail": refused.detail[:300],
            },
        )
    return refused


def _operational(outcome: LoadOutcome, error: CountersignError) -> LoadOutcome:
    """The signature could not be looked at: quiet where no owner is configured, loud otherwise."""
    quiet = isinstance(error, NoOwnerKey)
    (log.info if quiet else log.error)("command not loaded", file=outcome.file, detail=error.detail)
    return replace(
        outcome,
        outcome=LoadResult.OPERATIONAL,
        cause=LoadCause.OWNER_KEY if quiet else LoadCause.SIGNATURE,
        reason=error.code,
        detail=error.detail,
    )

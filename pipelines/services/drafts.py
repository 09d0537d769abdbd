"""Commands written in the console: drafts that never run, until the owner's signature comes back.

A draft lies beside the signed document and changes nothing about it. What is wrong with a draft is
said as it is typed; it can be kept all the same, and only its signature is refused.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from guards import documents
from guards.exceptions import CountersignError, InvalidInput, NotFound
from guards.services.units import unit_of_work
from guards.types import Asker, Subject
from pipelines import reading, specification
from pipelines.exceptions import DocumentUnreadable
from pipelines.models import Command
from pipelines.schema import Problem
from pipelines.services import commands, planning
from teams.services import events

#: Lines of a pretty document beyond which no difference is made.
MAX_DIFF_LINES = 2_000

_NO_DRAFT: Mapping[str, Any] = {"draft": None, "draft_text": "", "draft_by": "", "draft_at": None}


@dataclass(frozen=True, slots=True)
class DraftReport:
    """What there is to say about a text. `document` is None where it is no mapping.

    `digest` and `size` are of the canonical bytes, "" and 0 where there are none.
    """

    document: Mapping[str, Any] | None
    problems: tuple[Problem, ...]
    name: str = ""
    serial: int | None = None
    suggested_serial: int = 1
    digest: str = ""
    size: int = 0
    difference: str = ""


def check(text: str, *, name: str = "") -> DraftReport:
    """Everything that is wrong with a draft's text, as it would be looked at when it is signed.

    `name` is the command that it is a draft of, "" for a new one. Reads rows, writes nothing.
    """
    try:
        document, _ = reading.split_signature(_read(text))
        return check_document(document, name=name)
    except CountersignError as error:
        return DraftReport(None, (Problem(error.field or "", error.detail),))


def check_document(document: Mapping[str, Any], *, name: str = "") -> DraftReport:
    """The same for a document; InvalidInput for one that has no canonical form."""
    said, serial = document.get("name"), document.get("serial")
    row = Command.objects.filter(name=said).first() if isinstance(said, str) else None
    return DraftReport(
        document=document,
        problems=tuple(_problems(document, name, row)),
        name=said if isinstance(said, str) else "",
        serial=serial if type(serial) is int else None,
        suggested_serial=suggested_serial(row),
        digest=documents.digest(document),
        size=len(documents.canonical(document)),
        difference=difference(_signed(row), document),
    )


def save(*, text: str, by: Asker, name: str = "") -> Command:
    """Keep a text as the draft of its command; one that is new gets a row that never runs.

    DocumentUnreadable or InvalidInput for a text that has no document or no usable name in it.
    """
    document, _ = reading.split_signature(_read(text))
    digest = documents.digest(document)
    wanted = document.get("name")
    if not isinstance(wanted, str) or not planning.is_name(wanted):
        raise InvalidInput("a command's name has small letters, digits, - and _", field="name")
    if wanted in specification.BUILT_IN:
        raise InvalidInput(f"{wanted!r} is built in", field="name")
    if name and wanted != name:
        raise InvalidInput(f"this is the draft of {name}; {wanted} is another one", field="name")
    draft = {
        "draft": document,
        "draft_text": text,
        "draft_by": str(by)[:200],
        "draft_at": timezone.now(),
    }
    with unit_of_work():
        shown = _shown(document, digest)
        command, created = Command.objects.get_or_create(name=wanted, defaults={**shown, **draft})
        if not name and not created and command.highest_serial:
            raise InvalidInput(f"there is a command {wanted} already: edit that", field="name")
        Command.objects.filter(pk=command.pk).update(**draft)
        Command.objects.filter(pk=command.pk, highest_serial=0).update(**shown)
        events.append_event(
            kind="command.drafted",
            subject=Subject("pipelines.command", str(command.pk)),
            actor=str(by),
            facts={"name": wanted, "digest": digest},
        )
    command.refresh_from_db()
    return command


def discard(*, name: str, by: Asker) -> None:
    """Throw the draft of a command away; one that was never signed goes with it."""
    with unit_of_work():
        command = Command.objects.select_for_update().filter(name=name).first()
        if command is None or command.draft is None:
            raise NotFound(f"{name} has no draft", field="name")
        events.append_event(
            kind="command.draft_discarded",
            subject=Subject("pipelines.command", str(command.pk)),
            actor=str(by),
            facts={"name": name},
        )
        if command.highest_serial == 0 and not command.loaded_from:
            command.delete()
        else:
            Command.objects.filter(pk=command.pk).update(**_NO_DRAFT)


def suggested_serial(command: Command | None) -> int:
    """The serial that the next signed version takes: one above the highest ever seen."""
    return 1 if command is None else command.highest_serial + 1


def difference(signed: Mapping[str, Any] | None, draft: Mapping[str, Any]) -> str:
    """A unified diff; "" where nothing differs."""
    before = [] if signed is None else _pretty(signed)
    after = _pretty(draft)
    if len(before) + len(after) > MAX_DIFF_LINES:
        return "(too long to be compared here)"
    return "\n".join(difflib.unified_diff(before, after, "signed", "draft", lineterm=""))


def _pretty(document: Mapping[str, Any]) -> list[str]:
    """Lines as they are; what cannot be seen, or would turn the line around, by its number."""
    text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False)
    return ["".join(map(_visible, line)) for line in text.split("\n")]


def _visible(char: str) -> str:
    return char if char.isprintable() else json.dumps(char)[1:-1]


def _signed(command: Command | None) -> Mapping[str, Any] | None:
    return None if command is None or not command.highest_serial else command.document


def _read(text: str) -> dict[str, Any]:
    content = text.replace("\r\n", "\n").encode("utf-8", "replace")
    if len(content) > reading.MAX_FILE_BYTES:
        raise DocumentUnreadable(f"the text is larger than {reading.MAX_FILE_BYTES} bytes")
    return reading.read_text(content)


def _problems(document: Mapping[str, Any], name: str, row: Command | None) -> list[Problem]:
    found = list(specification.problems(document))
    if name and document.get("name") != name:
        found.append(Problem("name", f"this is the draft of {name}"))
    if row is not None and not found and not name and row.highest_serial:
        found.append(Problem("name", f"there is a command {row.name} already: edit that"))
    if found:
        return found
    try:
        commands.check_runner(specification.read(document))
        if row is not None:
            commands.check_serial(document["serial"], documents.digest(document), row)
    except CountersignError as error:
        return [Problem(error.field or "binary", error.detail)]
    return []


def _shown(document: Mapping[str, Any], digest: str) -> dict[str, Any]:
    """The columns of a command that nobody has signed yet."""
    runner, description = document.get("runner"), document.get("description")
    serial = document.get("serial")
    return {
        "document": document,
        "signature": "",
        "digest": digest,
        "serial": serial if type(serial) is int and 0 < serial < 2**31 else 0,
        "runner": runner if runner in ("cli", "claude") else "claude",
        "description": description if isinstance(description, str) else "",
        "signature_state": Command.SignatureState.MISSING,
        "signature_detail": "It was written in the console, and is not signed yet.",
        "checked_at": timezone.now(),
    }

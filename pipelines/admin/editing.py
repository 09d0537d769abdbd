"""The editor of commands: a draft as YAML, what is wrong with it, and the files around a signature.

It works without the script; with it, the text is checked while one types. Nothing here signs: the
owner's secret key never comes to this machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from guards import documents
from guards.exceptions import CountersignError, InvalidInput
from guards.fronts.console import ConsoleAdmin, operator
from pipelines import writing
from pipelines.models import Command
from pipelines.schema import Problem
from pipelines.services import commands, drafts

#: The largest detached signature that is taken, in bytes.
MAX_SIGNATURE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Draft:
    """A draft as the command's page shows it."""

    problems: tuple[Problem, ...]
    serial: int | None
    suggested_serial: int
    difference: str


def edit(admin: ConsoleAdmin, request: HttpRequest, command: Command | None) -> HttpResponse:
    """Show the editor, or keep what was typed as the draft and go to the command's page."""
    name = command.name if command is not None else ""
    refused = ""
    if request.method == "POST":
        text = request.POST.get("text", "")
        try:
            kept = drafts.save(text=text, name=name, by=operator(request))
        except CountersignError as error:
            refused = error.detail
        else:
            messages.success(request, f"The draft of {kept.name} is kept. It runs once signed.")
            return HttpResponseRedirect(reverse("admin:pipelines_command_change", args=[kept.pk]))
    else:
        text = _text_to_begin_with(request, command)
    context = {
        **admin.admin_site.each_context(request),
        "title": f"Edit {name}" if name else "New command",
        "opts": admin.opts,
        "original": command,
        "command": command,
        "text": text,
        "report": drafts.check(text, name=name),
        "refused": refused,
        "media": admin.media,
    }
    request.current_app = admin.admin_site.name
    return TemplateResponse(request, "pipelines/command_edit.html", context)


def check(request: HttpRequest) -> HttpResponse:
    """The report on a text as JSON."""
    report = drafts.check(request.POST.get("text", ""), name=request.POST.get("name", ""))
    return JsonResponse(
        {
            "ok": not report.problems,
            "problems": [
                {"field": problem.field, "reason": problem.reason} for problem in report.problems
            ],
            "name": report.name,
            "serial": report.serial,
            "suggested_serial": report.suggested_serial,
            "digest": report.digest,
            "size": report.size,
            "difference": report.difference,
        }
    )


def canonical(command: Command) -> HttpResponse:
    """The bytes that the owner signs, exactly, as a file."""
    content = documents.canonical(commands.document_to_sign(command))
    return _file(content, name_to_sign(command))


def name_to_sign(command: Command) -> str:
    """What the file of the bytes is called: a word of a shell's line, whatever is in the document.

    InvalidInput for a row that holds no document.
    """
    serial = whole(commands.document_to_sign(command)).get("serial")
    return f"{command.name}-{serial if type(serial) is int else 0}.canonical"


def whole(document: Any) -> Mapping[str, Any]:
    """The document of a row; InvalidInput for one that was written past us and has no form."""
    documents.canonical(document)
    return cast("Mapping[str, Any]", document)


def export(command: Command) -> HttpResponse:
    """The document that counts, with its signature."""
    content = writing.signed_yaml(whole(command.document), command.signature)
    return _file(content.encode(), f"{command.name}.yaml")


def sha256_to_sign(command: Command) -> str:
    """SHA-256 of the bytes that the owner signs."""
    return hashlib.sha256(documents.canonical(commands.document_to_sign(command))).hexdigest()


def draft_of(command: Command) -> Draft | None:
    """The draft of a command with what is wrong with it; None where there is none."""
    if command.draft is None:
        return None
    report = drafts.check_document(command.draft, name=command.name)
    return Draft(report.problems, report.serial, report.suggested_serial, report.difference)


def given_signature(request: HttpRequest) -> str:
    """The signature of a form: an uploaded file, or pasted text."""
    upload: Any = request.FILES.get("signature_file")
    if upload is None:
        return request.POST.get("signature", "")
    content: bytes = upload.read(MAX_SIGNATURE_BYTES + 1)
    if len(content) > MAX_SIGNATURE_BYTES:
        raise InvalidInput("the file is larger than any signature", field="signature")
    try:
        return content.decode("ascii")
    except UnicodeDecodeError as error:
        raise InvalidInput(
            "the file is not an armoured signature: make it with gpg --armor --detach-sign",
            field="signature",
        ) from error


def _text_to_begin_with(request: HttpRequest, command: Command | None) -> str:
    if command is None:
        runner = "claude" if request.GET.get("runner") == "claude" else "cli"
        return writing.command_template("new-command", runner=runner)
    if command.draft is not None:
        return command.draft_text
    raised = {**whole(command.document), "serial": drafts.suggested_serial(command)}
    return writing.as_yaml(raised)


def _file(content: bytes, name: str) -> HttpResponse:
    answer = HttpResponse(content, content_type="application/octet-stream")
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    answer["X-Content-Type-Options"] = "nosniff"
    answer["Cache-Control"] = "no-store"
    return answer

"""The commands that mail may ask for, and whether the owner signed them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from unfold.decorators import display

from guards import documents
from guards.fronts.console import Act, PageAdmin, operator
from pipelines import selectors
from pipelines.models import Command, Rule, Stage
from pipelines.services import commands as command_services

SIGNATURE_LABELS = {
    "does not run": "danger",
    "ok": "success",
    "missing": "warning",
    "invalid": "danger",
    "wrong key": "danger",
    "expired key": "danger",
    "could not be checked": "warning",
}
#: What a state of a signature means for the command.
SIGNATURES: Mapping[str, str] = {
    "ok": "The owner signed exactly this. It is checked again each time before it runs.",
    "missing": "Nobody has signed it, so it does not run.",
    "invalid": "The signature is not one over exactly this document, so it does not run.",
    "wrong-key": "It is signed, but not by the owner's key, so it does not run.",
    "expired-key": "It was signed with a key that has expired, so it does not run.",
    "operational": "The signature could not be checked, so it does not run for now.",
}


@admin.register(Command)
class CommandAdmin(PageAdmin):
    """The commands that mail may ask for, and whether the owner signed them."""

    page_template = "pipelines/command.html"
    empty_state = "Write one as YAML, sign it with the owner's key, and `load_commands DIR`."
    empty_icon = "terminal"
    list_display = ("name", "show_signature", "runner", "serial", "description", "checked_at")
    list_filter = ("signature_state", "runner")
    search_fields = ("name", "description", "digest")

    @display(description="Signature", ordering="signature_state", label=SIGNATURE_LABELS)
    def show_signature(self, command: Command) -> str:
        """The state's word, and whether it still holds: another owner may be named by now."""
        said = command.get_signature_state_display()
        return "does not run" if _hindrance(command) else said

    def acts(self) -> Mapping[str, Act]:
        """A signature that was made elsewhere is taken back here."""
        return {"sign": self.sign}

    def sign(self, request: HttpRequest, object_id: str) -> str:
        """Check a signature over the canonical bytes, and keep it."""
        command = Command.objects.get(pk=object_id)
        signature = request.POST.get("signature", "")
        command_services.accept_signature(
            name=command.name, signature=signature, by=operator(request)
        )
        return f"{command.name} is signed and may run."

    def page(self, request: HttpRequest, row: Command) -> Mapping[str, object]:
        """The document, the bytes to sign, and what the signature is worth."""
        document = row.document
        steps = document.get("steps") or [document]
        return {
            "title": row.name,
            "sentence": SIGNATURES.get(row.signature_state, ""),
            "hindrance": _hindrance(row),
            "canonical": documents.canonical(document).decode("utf-8", "replace"),
            "arguments": _declared(document.get("args")),
            "steps": [
                [step.get("binary", ""), *step.get("fixed_args", [])]
                for step in steps
                if isinstance(step, Mapping) and step.get("binary")
            ],
            "rules": list(Rule.objects.filter(calls__icontains=f'"{row.name}"')[:10]),
            "used": Stage.objects.filter(command=row.name).count(),
        }


def _hindrance(command: Command) -> str:
    """Why a command that was found to be signed would not run now; "" where it would, or was not.

    What was found out is remembered for a minute, so that a list does not ask gpg for each row.
    """
    if command.signature_state != Command.SignatureState.OK:
        return ""
    return selectors.why_not_runnable(command)


def _declared(args: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """The declared arguments by name, however the document writes them."""
    if isinstance(args, Mapping):
        return [(name, spec) for name, spec in args.items() if isinstance(spec, Mapping)]
    if isinstance(args, list):
        return [(str(spec.get("name", "")), spec) for spec in args if isinstance(spec, Mapping)]
    return []

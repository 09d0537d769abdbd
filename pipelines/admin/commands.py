"""The commands that mail may ask for, and whether the owner signed them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.views.decorators.http import require_POST, require_safe
from unfold.decorators import display

from guards import documents
from guards.exceptions import CountersignError
from guards.fronts.console import Act, PageAdmin, operator
from pipelines import selectors
from pipelines.admin import editing
from pipelines.models import Command, Rule, Stage
from pipelines.services import commands as command_services
from pipelines.services import drafts

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
    "operational": "It could not be checked to the end, so it does not run for now.",
}


@admin.register(Command)
class CommandAdmin(PageAdmin):
    """The commands that mail may ask for, and whether the owner signed them."""

    page_template = "pipelines/command.html"
    empty_state = "Write one here or as a file, and sign it with the owner's key."
    empty_icon = "terminal"
    list_display = (
        *("name", "show_signature", "runner", "serial", "show_draft", "description", "checked_at"),
    )
    list_filter = ("signature_state", "runner")
    search_fields = ("name", "description", "digest")

    @display(description="Signature", ordering="signature_state", label=SIGNATURE_LABELS)
    def show_signature(self, command: Command) -> str:
        """The state's word, and whether it still holds: another owner may be named by now."""
        said = command.get_signature_state_display()
        return "does not run" if _hindrance(command) else said

    @display(description="Draft", ordering="draft_at")
    def show_draft(self, command: Command) -> str:
        """Whose draft waits for a signature."""
        return command.draft_by if command.draft_at else ""

    def acts(self) -> Mapping[str, Act]:
        """A signature made elsewhere is taken back; a draft or a refused file is thrown away."""
        return {"sign": self.sign, "discard": self.discard, "remove": self.remove}

    def pages(self) -> list[URLPattern]:
        """The editor, its check while one types, and the files to take away."""
        wrap = self.admin_site.admin_view
        return [
            path("check/", wrap(require_POST(self.check_view)), name=self._short("check")),
            path("<path:object_id>/edit/", wrap(self.edit_view), name=self._short("edit")),
            path(
                "<path:object_id>/canonical/",
                wrap(require_safe(self.canonical_view)),
                name=self._short("canonical"),
            ),
            path(
                "<path:object_id>/export/",
                wrap(require_safe(self.export_view)),
                name=self._short("export"),
            ),
        ]

    def has_add_permission(self, request: HttpRequest) -> bool:
        """A service stands behind the editor."""
        return bool(request.user.has_perm("pipelines.add_command"))

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """The editor, for a command that is not there yet."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        return editing.edit(self, request, None)

    def edit_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The editor, for the next version of a command."""
        if not self.may_act(request):
            raise PermissionDenied
        command = self.get_object(request, unquote(object_id))
        if command is None:
            return self._nothing_there(request, object_id)
        try:
            return editing.edit(self, request, command)
        except CountersignError as error:
            return self._without_document(request, command, error)

    def check_view(self, request: HttpRequest) -> HttpResponse:
        """What is wrong with the text as it stands, for the editor's script."""
        if not (self.may_act(request) or self.has_add_permission(request)):
            raise PermissionDenied
        return editing.check(request)

    def canonical_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The exact bytes to sign: of the draft, or of the document where there is none."""
        return self._taken_away(request, object_id, editing.canonical)

    def export_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The signed document with its signature, as `load_commands` takes it."""
        return self._taken_away(request, object_id, editing.export)

    def _taken_away(
        self, request: HttpRequest, object_id: str, made: Callable[[Command], HttpResponse]
    ) -> HttpResponse:
        command = self.get_object(request, unquote(object_id))
        if command is None:
            return self._nothing_there(request, object_id)
        if not self.has_view_permission(request, command):
            raise PermissionDenied
        try:
            return made(command)
        except CountersignError as error:
            return self._without_document(request, command, error)

    def _without_document(
        self, request: HttpRequest, command: Command, error: CountersignError
    ) -> HttpResponse:
        """Back to the page of a row that somebody wrote past us."""
        messages.error(request, f"{command.name}: {error.detail}")
        return HttpResponseRedirect(self.page_url(str(command.pk)))

    def sign(self, request: HttpRequest, object_id: str) -> str:
        """Check a signature over the canonical bytes, and keep it."""
        command = Command.objects.get(pk=object_id)
        command_services.accept_signature(
            name=command.name, signature=editing.given_signature(request), by=operator(request)
        )
        return f"{command.name} is signed and may run."

    def discard(self, request: HttpRequest, object_id: str) -> str:
        """Throw the draft away; what was signed stays as it is."""
        command = Command.objects.get(pk=object_id)
        drafts.discard(name=command.name, by=operator(request))
        return f"The draft of {command.name} is gone."

    def remove(self, request: HttpRequest, object_id: str) -> str:
        """Take a refused file away that nobody ever signed."""
        command = Command.objects.get(pk=object_id)
        command_services.remove_refused(name=command.name, by=operator(request))
        return f"{command.name} is gone. Its file, if it is still there, will be refused again."

    def act_target(self, request: HttpRequest, object_id: str, act: str) -> str:
        """The command's page; the list once the command is gone."""
        if Command.objects.filter(pk=object_id).exists():
            return self.page_url(object_id)
        return reverse("admin:pipelines_command_changelist")

    def page(self, request: HttpRequest, row: Command) -> Mapping[str, object]:
        """The document, the bytes to sign, and what the signature is worth."""
        document = row.document if isinstance(row.document, Mapping) else {}
        return {
            "title": row.name,
            "sentence": SIGNATURES.get(row.signature_state, ""),
            "hindrance": _hindrance(row),
            "canonical": _or_reason(lambda: documents.canonical(row.document).decode()),
            "arguments": _declared(document.get("args")),
            "steps": _vectors(document),
            "rules": list(Rule.objects.filter(calls__icontains=f'"{row.name}"')[:10]),
            "is_signed": row.highest_serial > 0,
            "draft": editing.draft_of(row),
            "to_sign": _or_reason(lambda: editing.name_to_sign(row)),
            "to_sign_sha256": _or_reason(lambda: editing.sha256_to_sign(row)),
            "used": Stage.objects.filter(command=row.name).count(),
        }


def _hindrance(command: Command) -> str:
    """Why a command that was found to be signed would not run now; "" where it would, or was not.

    What was found out is remembered for a minute, so that a list does not ask gpg for each row.
    """
    if command.signature_state != Command.SignatureState.OK:
        return ""
    return selectors.why_not_runnable(command)


def _or_reason(make: Callable[[], str]) -> str:
    """What is made of a row's document, or why nothing can be."""
    try:
        return make()
    except CountersignError as error:
        return f"({error.detail})"


def _vectors(document: Mapping[str, Any]) -> list[list[Any]]:
    """The programs with their fixed words, of a document that may not have passed any check."""
    steps = document.get("steps")
    found = []
    for step in steps if isinstance(steps, list) and steps else [document]:
        if isinstance(step, Mapping) and step.get("binary"):
            words = step.get("fixed_args")
            found.append([step["binary"], *(words if isinstance(words, list) else [])])
    return found


def _declared(args: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """The declared arguments by name, however the document writes them."""
    if isinstance(args, Mapping):
        return [(name, spec) for name, spec in args.items() if isinstance(spec, Mapping)]
    if isinstance(args, list):
        return [(str(spec.get("name", "")), spec) for spec in args if isinstance(spec, Mapping)]
    return []

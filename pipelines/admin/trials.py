"""What would become of a message now, without starting anything: the console's dry run."""

from __future__ import annotations

from dataclasses import dataclass

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from guards.exceptions import CountersignError
from guards.fronts.console import ConsoleAdmin, may_view
from mail import selectors as mail
from mail.models import Message
from pipelines import selectors
from pipelines.models import Rule
from pipelines.services import dry_run
from pipelines.types import DryRun, Refusal

_COVERED = "Its sender may not be read here: reveal it on its page first."


@dataclass(frozen=True, slots=True)
class Trial:
    """What would be planned for one message, and what keeps it from starting anything now.

    `run` is planned whatever the decision about the message is now, which `held` tells.
    """

    message: Message
    run: DryRun | None = None
    held: Refusal | None = None
    problem: str = ""


def recent_executables(request: HttpRequest) -> list[Message]:
    """The newest messages that could start work: what one would try a rule on."""
    if not may_view(request, Message):
        return []
    found = Message.objects.filter(action="execute").select_related("account").defer("text")
    return list(found.order_by("-id")[:20])


def trial_of(request: HttpRequest) -> Trial | None:
    """The trial that the address asks for. It judges the stored bytes again and writes nothing."""
    wanted = request.GET.get("message", "")
    if not (wanted.isascii() and wanted.isdigit() and may_view(request, Message)):
        return None
    message = _message(int(wanted))
    return None if message is None else try_on(message)


def try_on(message: Message) -> Trial:
    """Plan a message as a pipeline would, and say what comes out: its arguments are its words."""
    if message.pk not in mail.shown([message]):
        return Trial(message, problem=_COVERED)
    try:
        judged = dry_run.of_message(message)
        planned = dry_run.of_message(message, admitted=True) if judged.refused else judged
    except (CountersignError, OSError) as problem:
        return Trial(message, problem=str(problem))
    if planned.planner == "none" and planned.refused is not None:
        return Trial(message, held=planned.refused)
    held = judged.refused if judged != planned else None
    return Trial(message, planned, held)


def dry_run_page(admin: ConsoleAdmin, request: HttpRequest, message_id: int) -> HttpResponse:
    """A page of its own for one message, for whoever may see both messages and rules."""
    if not (may_view(request, Message) and may_view(request, Rule)):
        raise PermissionDenied
    message = _message(message_id)
    if message is None:
        raise Http404
    context = {
        **admin.admin_site.each_context(request),
        "title": "Dry run",
        "opts": admin.opts,
        "trial": try_on(message),
        "why": selectors.why_no_pipeline(message),
        "message": message,
        "media": admin.media,
    }
    return TemplateResponse(request, "pipelines/dry_run.html", context)


def _message(number: int) -> Message | None:
    if number >= 2**63:
        return None
    return Message.objects.select_related("account__identity").filter(pk=number).first()

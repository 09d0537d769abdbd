"""What the rules would make of a message now, without starting anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from guards.exceptions import CountersignError
from guards.fronts.console import may_view
from mail import selectors as mail_selectors
from mail.models import Message
from pipelines.services import planning


@dataclass(frozen=True, slots=True)
class Trial:
    """What the rules make of one message, now, without starting anything."""

    message: Message
    rule: str = ""
    calls: tuple[Any, ...] = ()
    refused: str = ""
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
    message = Message.objects.select_related("account__identity").filter(pk=int(wanted)).first()
    return None if message is None else try_on(message)


def try_on(message: Message) -> Trial:
    """Plan a message as a pipeline would, and say what comes out."""
    try:
        text = mail_selectors.reassess(message).executable_text
    except (CountersignError, OSError) as problem:
        return Trial(message, problem=str(problem))
    if text is None:
        return Trial(
            message, problem="It has no text that may start work: see its trust and decision."
        )
    found = planning.try_rules(
        text=text, sender=message.sender, identity_id=message.account.identity_id
    )
    refused = f"{found.refused.rule}: {found.refused.detail}" if found.refused else ""
    return Trial(message, found.rule or "", tuple(found.calls or ()), refused)

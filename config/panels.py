"""What upper apps have to say on lower apps' pages: composed here, where all of them are known."""

from __future__ import annotations

from django.http import HttpRequest
from django.urls import reverse

from approvals.models import Hold
from guards.fronts.console import Panel, PanelSource, may_view, register_panel
from mail import selectors as mail_selectors
from mail.models import Message, Outbound
from mail.sentences import answer_sentence
from pipelines import selectors as pipelines_selectors
from pipelines.models import Mission, Pipeline, ToolCall
from pipelines.models import Rule as PlanningRule
from teams import selectors as teams_selectors
from teams.models import Event

#: How many events of one row its page shows.
EVENTS_SHOWN = 50


def work_of_message(request: HttpRequest, message: Message) -> Panel | None:
    """The pipeline that a message became, or why it became none and what would change that."""
    if not may_view(request, Pipeline):
        return None
    pipeline = Pipeline.objects.filter(message=message).prefetch_related("stages").first()
    why_not = pipelines_selectors.why_no_pipeline(message)
    may_try = may_view(request, PlanningRule)
    trial = reverse("admin:pipelines_rule_dry_run", args=[message.pk]) if may_try else ""
    return Panel(
        "pipelines/message_panel.html",
        {"pipeline": pipeline, "why_not": why_not, "trial_url": trial},
    )


def draft_of_hold(request: HttpRequest, hold: Hold) -> Panel | None:
    """The letter that waits."""
    if hold.subject_type != "mail.outbound" or not may_view(request, Outbound):
        return None
    draft = Outbound.objects.select_related("account__identity").filter(pk=hold.subject_id).first()
    return None if draft is None else Panel("mail/draft_panel.html", {"draft": draft})


def question_of_hold(request: HttpRequest, hold: Hold) -> Panel | None:
    """The tool call that waits."""
    if hold.subject_type != "pipelines.tool_call" or not may_view(request, Mission):
        return None
    call = ToolCall.objects.select_related("mission__pipeline").filter(pk=hold.subject_id).first()
    return None if call is None else Panel("pipelines/question_panel.html", {"call": call})


def answer_of_message(request: HttpRequest, message: Message) -> Panel | None:
    """What a mail that answers something did."""
    answer = mail_selectors.answer_of(message)
    if answer is None or not may_view(request, Message):
        return None
    sentence = answer_sentence(answer.reason) if answer.reason else ""
    return Panel("mail/answer_panel.html", {"answer": answer, "sentence": sentence})


def notices_of_hold(request: HttpRequest, hold: Hold) -> Panel | None:
    """When and how the owner was told of a draft."""
    if not may_view(request, Outbound):
        return None
    told = mail_selectors.notices_of(hold)
    return Panel("mail/notices_panel.html", {"items": told}) if told else None


def events_of(subject_type: str) -> PanelSource:
    """A source of the panel with a row's own part of the record."""

    def source(request: HttpRequest, row: object) -> Panel | None:
        if not may_view(request, Event):
            return None
        key = str(getattr(row, "pk", ""))
        about = teams_selectors.events_about(subject_type=subject_type, subject_id=key)
        return Panel("console/events.html", {"events": list(about[:EVENTS_SHOWN])}, last=True)

    return source


def register() -> None:
    """Put every panel onto its page."""
    register_panel("mail.message", answer_of_message)
    register_panel("mail.message", work_of_message)
    register_panel("approvals.hold", draft_of_hold)
    register_panel("approvals.hold", question_of_hold)
    register_panel("approvals.hold", notices_of_hold)
    for subject_type in (
        "mail.message",
        "mail.outbound",
        "approvals.hold",
        "approvals.approval",
        "approvals.effect",
        "pipelines.pipeline",
        "pipelines.mission",
        "pipelines.command",
    ):
        register_panel(subject_type, events_of(subject_type))

"""Pipelines and stages: each message's work, from plan to reply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from unfold.decorators import display

from guards.fronts.console import Act, PageAdmin, may_view, operator
from mail.models import Outbound
from pipelines import covering, selectors
from pipelines.admin import timeline
from pipelines.admin.timeline import ShownStage
from pipelines.models import Mission, Pipeline, Stage, ToolCall
from pipelines.services import control, replies, resuming
from pipelines.services.intake import REPLY
from teams import selectors as teams

STATUS_LABELS = {
    "planned": "info",
    "queued": "info",
    "running": "info",
    "waiting for approval": "warning",
    "completed": "success",
    "failed": "danger",
    "interrupted": "danger",
}
STAGE_LABELS = {
    "claimed": "info",
    "running": "info",
    "waiting for approval": "warning",
    "succeeded": "success",
    "failed": "danger",
    "interrupted": "danger",
    "incomplete": "warning",
}
#: Stages that are at something or wait for somebody.
_BEGUN = Stage.HELD | {Stage.Status.WAITING_APPROVAL}
#: How a stage's stretch of time is drawn.
STAGE_TONES = {
    "claimed": "info",
    "running": "info",
    "waiting_approval": "info",
    "succeeded": "ok",
    "failed": "bad",
    "interrupted": "bad",
    "incomplete": "warn",
}


@admin.register(Pipeline)
class PipelineAdmin(PageAdmin):
    """Each message's work, from plan to reply."""

    page_template = "pipelines/pipeline.html"
    empty_state = "Mail from a contact with x, surely from that contact, starts one."
    empty_icon = "account_tree"
    list_display = (
        "show_name",
        "show_status",
        "requester",
        "identity",
        "show_stages",
        "created_at",
    )
    list_filter = ("status", "identity", "planner")
    search_fields = ("id", "requester", "planner", "refused_rule")
    date_hierarchy = "created_at"
    list_select_related = ("identity",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Pipeline]:
        """With its identity and the number of its stages."""
        rows: QuerySet[Pipeline] = super().get_queryset(request)
        return rows.select_related("identity", "message__account").annotate(size=Count("stages"))

    @display(description="Pipeline", ordering="created_at")
    def show_name(self, pipeline: Pipeline) -> str:
        """The start of its id and who planned it."""
        return f"{str(pipeline.pk)[:8]} · {pipeline.planner}"

    @display(description="Status", ordering="status", label=STATUS_LABELS)
    def show_status(self, pipeline: Pipeline) -> str:
        """The status's word."""
        return pipeline.get_status_display()

    @display(description="Stages", ordering="size")
    def show_stages(self, pipeline: Pipeline) -> int:
        """How many stages it has, the reply included."""
        return int(getattr(pipeline, "size", 0))

    def acts(self) -> Mapping[str, Act]:
        """Work that has not come to its end can be given up, and what stopped can go on."""
        return {"cancel": self.cancel, "resume": self.resume}

    def cancel(self, request: HttpRequest, object_id: str) -> str:
        """No further stage runs."""
        control.cancel(pipeline_id=UUID(object_id), by=operator(request))
        return "Cancelled: no further stage runs."

    def resume(self, request: HttpRequest, object_id: str) -> str:
        """It goes on from where it stopped, if that may be repeated."""
        control.resume(pipeline_id=UUID(object_id), by=operator(request))
        return "It goes on from where it stopped, and answers anew."

    def page(self, request: HttpRequest, row: Pipeline) -> Mapping[str, object]:
        """Stages on a scale of time, what was asked and what came, and the reply at its end."""
        ended = row.finished_at or timezone.now()
        is_covered = selectors.is_covered(row.pk, for_person=True)
        stages = timeline.stages_of(
            row, with_missions=may_view(request, Mission), is_covered=is_covered
        )
        reply = replies.reply_of(row.pk)
        return {
            "row": covering.pipeline(row) if is_covered else row,
            "covered": is_covered,
            "title": f"Pipeline {str(row.pk)[:8]}",
            "stages": stages,
            "lines": timeline.lines(row, stages, STAGE_TONES),
            "span": (ended - row.created_at).total_seconds(),
            "usage": timeline.total_usage(stages),
            "waits": _waits(row, stages, reply, is_covered=is_covered),
            "reply": covering.mail(reply) if reply is not None and is_covered else reply,
            "took": (ended - row.started_at).total_seconds() if row.started_at else None,
            "reply_waits": _reply_waits(row, stages),
            "interrupted": row.status == Pipeline.Status.INTERRUPTED,
            "can_resume": self.may_act(request) and resuming.may_resume(row),
            "can_cancel": row.status not in Pipeline.ENDED and self.may_act(request),
            "lost": _lost(row, stages, reply),
        }


@dataclass(frozen=True, slots=True)
class Wait:
    """What a pipeline waits for: a sentence, and where it can be answered."""

    sentence: str
    hold_id: UUID | None = None


def _waits(
    row: Pipeline, stages: list[ShownStage], reply: Outbound | None, *, is_covered: bool
) -> list[Wait]:
    """Each thing that keeps it; a hold has a page where it is answered."""
    if row.status in Pipeline.ENDED:
        return []
    found = [
        Wait(f"{shown.row.command} asks whether it may use {question.tool}.", question.hold_id)
        for shown in stages
        for mission in shown.missions
        for question in mission.questions
        if question.state == ToolCall.State.WAITING
    ]
    found += [
        Wait(
            f"The mail “{covering.COVERED if is_covered else sent.subject}” of a stage waits for a "
            "person.",
            sent.hold_id,
        )
        for sent in replies.messages_of(row)
        if sent.status == Outbound.Status.HELD and (reply is None or sent.pk != reply.pk)
    ]
    if row.status in Pipeline.DUE:
        found.append(Wait(_queue_reason(row)))
    return found


def _lost(row: Pipeline, stages: list[ShownStage], reply: Outbound | None) -> str:
    """One sentence: what cancelling it takes away for good."""
    if reply is not None and reply.status == Outbound.Status.HELD:
        return (
            "The reply that waits is withdrawn and never sent; what the stages have done stays "
            "done, and none of this can be taken back."
        )
    begun = [shown for shown in stages if shown.row.status in _BEGUN]
    due = [shown for shown in stages if shown.row.status == Stage.Status.PENDING]
    lost = [f"{shown.row.command} is ended where it stands" for shown in begun]
    if any(shown.missions for shown in begun):
        lost.append("what its worker has not handed in is lost")
    if any(shown.row.status == Stage.Status.WAITING_APPROVAL for shown in begun):
        lost.append("what waits for a person is withdrawn")
    works = [shown for shown in due if shown.row.command != REPLY]
    if works:
        lost.append(f"{', '.join(shown.row.command for shown in works)} will never run")
    lost.append(f"{row.requester} gets the fixed text instead of an answer")
    sentence = "; ".join(lost)
    return f"{sentence[:1].upper()}{sentence[1:]}; none of this can be taken back."


def _reply_waits(row: Pipeline, stages: list[ShownStage]) -> bool:
    """Whether a person is asked about the answer, and not about a stage's work."""
    waiting = {shown.row.command for shown in stages if shown.row.status == row.status}
    return row.status == Pipeline.Status.WAITING_APPROVAL and not waiting - {REPLY}


def _queue_reason(row: Pipeline) -> str:
    """Why no worker has it: the last reason on record, else that its turn has not come."""
    about = teams.events_about(subject_type="pipelines.pipeline", subject_id=str(row.pk))
    last = about.filter(kind="pipeline.queued").last()
    if last is not None and last.facts.get("reason"):
        return f"It is in the queue: {last.facts['reason']}."
    return "It is in the queue, and a worker takes it when its turn has come."


@admin.register(Stage)
class StageAdmin(PageAdmin):
    """Every step that ever ran or did not."""

    page_template = "pipelines/stage.html"
    empty_state = "Stages appear with the pipelines that make them."
    empty_icon = "linear_scale"
    list_display = (
        "show_name",
        "show_status",
        "pipeline",
        "exit_code",
        "started_at",
        "finished_at",
    )
    list_filter = ("status", "runner", "command")
    search_fields = ("command", "pipeline__id", "error")
    date_hierarchy = "started_at"
    list_select_related = ("pipeline",)

    @display(description="Stage", ordering="command")
    def show_name(self, stage: Stage) -> str:
        """Position and command."""
        return str(stage)

    @display(description="Status", ordering="status", label=STAGE_LABELS)
    def show_status(self, stage: Stage) -> str:
        """The status's word."""
        return stage.get_status_display()

    def page(self, request: HttpRequest, row: Stage) -> Mapping[str, object]:
        """The one step."""
        is_covered = selectors.is_covered(row.pipeline_id, for_person=True)
        shown = covering.stage(row) if is_covered else row
        return {"row": shown, "stage": timeline.shown(shown)}

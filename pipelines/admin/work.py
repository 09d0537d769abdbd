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

from guards.fronts.console import Act, PageAdmin, operator
from pipelines.models import Pipeline, Stage
from pipelines.services import control, replies, resuming

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
        """Stages as a timeline, and the reply at its end."""
        ended = row.finished_at or timezone.now()
        return {
            "title": f"Pipeline {str(row.pk)[:8]}",
            "stages": [_shown(stage) for stage in row.stages.order_by("position")],
            "reply": replies.reply_of(row.pk),
            "took": (ended - row.started_at).total_seconds() if row.started_at else None,
            "waits_on_person": row.status == Pipeline.Status.WAITING_APPROVAL,
            "interrupted": row.status == Pipeline.Status.INTERRUPTED,
            "can_resume": self.may_act(request) and resuming.may_resume(row),
            "can_cancel": row.status not in Pipeline.ENDED and self.may_act(request),
        }


@dataclass(frozen=True, slots=True)
class ShownStage:
    """A stage with what its timeline says: how long it took, how its argv reads, its symbol."""

    row: Stage
    seconds: float | None
    argv: list[list[str]]
    icon: str


_STAGE_ICONS = {
    "succeeded": "check",
    "failed": "close",
    "interrupted": "power_off",
    "running": "play_arrow",
    "claimed": "play_arrow",
    "waiting_approval": "front_hand",
    "incomplete": "question_mark",
    "cancelled": "block",
}


def _shown(stage: Stage) -> ShownStage:
    seconds = None
    if stage.started_at:
        seconds = ((stage.finished_at or timezone.now()) - stage.started_at).total_seconds()
    argv = stage.argv or []
    chain = argv if argv and isinstance(argv[0], list) else [argv] if argv else []
    return ShownStage(stage, seconds, chain, _STAGE_ICONS.get(stage.status, "more_horiz"))


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
        return {"stage": _shown(row)}

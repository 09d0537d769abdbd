"""`/api/v1`: pipelines, their stages, commands and rules. Read-only."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from django.http import HttpRequest
from ninja import Query, Router

from guards.fronts.api import ERRORS, USUAL_ROWS, TokenAuth, take_page, token_of
from pipelines import costs, selectors
from pipelines.models import Mission, Pipeline
from pipelines.schemas import (
    CommandOut,
    CommandPage,
    CostOut,
    CostsOut,
    MissionDetail,
    MissionOut,
    MissionPage,
    PipelineOut,
    PipelinePage,
    RuleOut,
    StageOut,
)

router = Router(tags=["pipelines"], auth=TokenAuth("pipelines:read"))

Cursor = Annotated[str | None, Query(description="`next_cursor` of the page before")]
Limit = Annotated[int, Query(description="rows of a page, at most 200")]


@router.get("/pipelines", response={200: PipelinePage, **ERRORS}, summary="Pipelines, newest first")
def list_pipelines(
    request: HttpRequest,
    cursor: Cursor = None,
    limit: Limit = USUAL_ROWS,
    status: Pipeline.Status | None = None,
) -> PipelinePage:
    """Pipelines of the token's identity; all of them where it belongs to none."""
    rows = selectors.pipelines_for(token_of(request), status=status)
    page = take_page(rows, cursor=cursor, limit=limit, key="created_at")
    items = [PipelineOut.of(row) for row in selectors.shown_pipelines(page.items)]
    return PipelinePage(items=items, next_cursor=page.next_cursor)


@router.get(
    "/pipelines/{pipeline_id}", response={200: PipelineOut, **ERRORS}, summary="One pipeline"
)
def show_pipeline(request: HttpRequest, pipeline_id: UUID) -> PipelineOut:
    """One pipeline that the token may see.

    Arguments and errors are redacted where the sender of its mail may not be read.
    """
    found = selectors.pipeline_for(token_of(request), pipeline_id)
    return PipelineOut.of(*selectors.shown_pipelines([found]))


@router.get(
    "/pipelines/{pipeline_id}/stages",
    response={200: list[StageOut], **ERRORS},
    summary="A pipeline's stages in their order",
)
def list_stages(request: HttpRequest, pipeline_id: UUID) -> list[StageOut]:
    """The stages of one pipeline, the reply last.

    Arguments, outputs and errors are redacted where the sender of its mail may not be read.
    """
    pipeline = selectors.pipeline_for(token_of(request), pipeline_id)
    stages = selectors.shown_stages(selectors.stages_of(pipeline))
    return [StageOut.of(stage) for stage in stages]


@router.get("/missions", response={200: MissionPage, **ERRORS}, summary="Missions, newest first")
def list_missions(
    request: HttpRequest,
    cursor: Cursor = None,
    limit: Limit = USUAL_ROWS,
    status: Mission.Status | None = None,
    command: Annotated[str | None, Query(max_length=64, pattern=r"^[^\x00]+$")] = None,
) -> MissionPage:
    """Missions of the pipelines that the token may see."""
    wanted = {"status": status, "command": command}
    rows = selectors.missions_for(token_of(request)).filter(
        **{name: value for name, value in wanted.items() if value is not None}
    )
    page = take_page(rows, cursor=cursor, limit=limit, key="opened_at")
    items = [MissionOut.of(row) for row in selectors.shown_missions(page.items)]
    return MissionPage(items=items, next_cursor=page.next_cursor)


@router.get(
    "/missions/{mission_id}", response={200: MissionDetail, **ERRORS}, summary="One mission whole"
)
def show_mission(request: HttpRequest, mission_id: UUID) -> MissionDetail:
    """A mission's contract, results, looks back, events and tool calls.

    What comes of its mail is redacted where its sender may not be read.
    """
    mission = selectors.mission_for(token_of(request), mission_id)
    return MissionDetail.whole(mission, is_covered=selectors.is_covered(mission.pipeline_id))


@router.get("/costs", response={200: CostsOut, **ERRORS}, summary="What missions have cost")
def show_costs(
    request: HttpRequest,
    days: Annotated[
        int, Query(ge=1, le=costs.MOST_DAYS, description="so many days, today (UTC) the last")
    ] = costs.DAYS,
) -> CostsOut:
    """What the missions that the token may see have cost, by day, command and requester."""
    rows = costs.recent(selectors.missions_for(token_of(request)), days)
    return CostsOut(
        days=days,
        total=CostOut.of(costs.total(rows)),
        by_day=list(map(CostOut.of, costs.by_day(rows))),
        by_command=list(map(CostOut.of, costs.by_command(rows))),
        by_requester=list(map(CostOut.of, costs.by_requester(rows))),
    )


@router.get("/commands", response={200: CommandPage, **ERRORS}, summary="All commands")
def list_commands(
    request: HttpRequest, cursor: Cursor = None, limit: Limit = USUAL_ROWS
) -> CommandPage:
    """Every command by name, those that never run included, with the state of its signature."""
    page = take_page(
        selectors.commands(), cursor=cursor, limit=limit, key="name", newest_first=False
    )
    items = [CommandOut.of(row) for row in page.items]
    return CommandPage(items=items, next_cursor=page.next_cursor)


@router.get("/rules", response={200: list[RuleOut], **ERRORS}, summary="The planning rules")
def list_rules(request: HttpRequest) -> list[RuleOut]:
    """The rules that may plan for the token's identity, in the order in which they are asked."""
    return [RuleOut.of(rule) for rule in selectors.rules_for(token_of(request))]

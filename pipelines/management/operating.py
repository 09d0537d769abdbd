"""`pipeline list`, `show|retry|cancel ID`: which there are, what one did, an operator's word."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import UUID

from guards.exceptions import NotFound
from guards.fronts.commands import JsonCommand, wrong_use
from guards.types import Asker
from mail.models import Outbound
from pipelines import selectors
from pipelines.management import naming
from pipelines.models import Mission, Pipeline, Stage
from pipelines.schemas import PipelineOut
from pipelines.services import control, replies, resuming

SHELL = Asker("operator", "shell")
#: How many pipelines a list shows, and how many at most.
USUAL, MOST = 50, 1000
LISTING = "Pipelines, newest first; with --json one JSON line each."

VERBS = {
    "show": "Show a pipeline: its stages, missions and mail.",
    "retry": "Have an interrupted pipeline go on from where it stopped, if that may be repeated.",
    "cancel": "End a pipeline: what runs is killed, and its requester gets the fixed text.",
}


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    """Which pipelines, and how many of them."""
    parser.add_argument("--status", choices=Pipeline.Status.values)
    parser.add_argument(
        "--limit",
        type=int,
        default=USUAL,
        help=f"at most so many (1 to {MOST}); {USUAL} if not said",
    )


def perform_list(command: JsonCommand, options: Mapping[str, Any]) -> None:
    """The newest pipelines first, in the shape of the API; one line each."""
    if not 1 <= options["limit"] <= MOST:
        raise wrong_use(f"--limit is at least 1 and at most {MOST}")
    newest = selectors.pipelines(status=options["status"])[: options["limit"]]
    for row in selectors.shown_pipelines(newest, for_person=True):
        command.emit(PipelineOut.of(row).model_dump(mode="json"), _line(row))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The pipeline, as its mail or its page names it."""
    parser.add_argument(
        "pipeline", metavar="ID", help="a pipeline's id or its start, or its mail's reference"
    )


def perform(command: JsonCommand, verb: str, options: Mapping[str, Any]) -> None:
    """Do what the verb says, and say how the pipeline stands then."""
    pipeline_id = _id(options["pipeline"])
    pipeline = _DO[verb](pipeline_id)
    document = as_document(pipeline)
    command.emit(document, "\n".join(_in_words(pipeline, document)))


def as_document(pipeline: Pipeline) -> dict[str, object]:
    """A pipeline as JSON: what each stage did and cost, its missions, its mail.

    Without what came of its mail where that may not be read here.
    """
    (pipeline,) = selectors.shown_pipelines([pipeline], for_person=True)
    stages = selectors.shown_stages(selectors.stages_of(pipeline), for_person=True)
    return {
        "pipeline": str(pipeline.pk),
        "status": pipeline.status,
        "identity": pipeline.identity.handle,
        "requester": pipeline.requester,
        "message": pipeline.message_id,
        "planner": pipeline.planner,
        "refused": pipeline.refused_rule or None,
        "error": pipeline.error or None,
        "write_set": pipeline.write_set,
        "resumptions": pipeline.resumptions,
        "may_resume": resuming.may_resume(pipeline),
        **_times(pipeline, "created_at", "started_at", "finished_at", "acknowledged_at"),
        "stages": [_stage(row) for row in stages],
        "missions": [_mission(row) for row in pipeline.missions.order_by("opened_at")],
        "mail": [_mail(row) for row in replies.messages_of(pipeline)],
    }


def _show(pipeline_id: UUID) -> Pipeline:
    pipeline = Pipeline.objects.select_related("identity").filter(pk=pipeline_id).first()
    if pipeline is None:
        raise NotFound(f"there is no pipeline {pipeline_id}", field="pipeline")
    return pipeline


def _retry(pipeline_id: UUID) -> Pipeline:
    return control.resume(pipeline_id=pipeline_id, by=SHELL)


def _cancel(pipeline_id: UUID) -> Pipeline:
    return control.cancel(pipeline_id=pipeline_id, by=SHELL)


_DO: dict[str, Callable[[UUID], Pipeline]] = {"show": _show, "retry": _retry, "cancel": _cancel}


def _id(named: str) -> UUID:
    """The one pipeline whose id is, or begins with, what was typed."""
    least, most = naming.ids_from(named.strip().removeprefix("pipeline-"))
    if least == most:
        return least
    found = list(Pipeline.objects.filter(pk__range=(least, most)).values_list("pk", flat=True)[:2])
    if len(found) != 1:
        raise wrong_use(f"{len(found) or 'no'} pipelines begin with {named!r}"[:200])
    return found[0]


def _line(row: Pipeline) -> str:
    why = row.refused_rule or row.error
    return (
        f"{row.pk}  {row.status:<16} {row.identity.handle}  for {row.requester}"
        f"  {row.planner}  {row.created_at:%F %R}{f'  {why}' if why else ''}"
    )


def _times(row: object, *names: str) -> dict[str, str | None]:
    moments = {name: getattr(row, name) for name in names}
    return {name: moment and moment.isoformat() for name, moment in moments.items()}


def _stage(stage: Stage) -> dict[str, object]:
    return {
        "position": stage.position,
        "command": stage.command,
        "runner": stage.runner,
        "status": stage.status,
        "attempt": stage.attempt,
        "exit_code": stage.exit_code,
        "error": stage.error or None,
        "usage": stage.usage,
        "retriable": stage.retriable,
        "argv": stage.argv,
        **_times(stage, "started_at", "finished_at"),
    }


def _mission(mission: Mission) -> dict[str, object]:
    return {
        "mission": str(mission.pk),
        "command": mission.command,
        "status": mission.status,
        "round": mission.round,
        "usd": f"{mission.usd:f}",
        "turns": mission.turns,
    }


def _mail(message: Outbound) -> dict[str, object]:
    return {
        "outbound": str(message.pk),
        "origin": message.origin_type,
        "status": message.status,
        "reason": message.reason or None,
    }


def _in_words(pipeline: Pipeline, document: Mapping[str, Any]) -> Iterator[str]:
    why = document["error"]
    yield f"{pipeline}  {pipeline.status}" + (f": {why}" if why else "")
    yield f"  for {pipeline.requester} by {pipeline.identity.handle}, planned by {pipeline.planner}"
    for stage in document["stages"]:
        ended = "" if stage["error"] is None else f": {stage['error']}"
        yield f"  {stage['position']}. {stage['command']}  {stage['status']}{ended}"
    for mission in document["missions"]:
        yield (
            f"  mission {mission['mission']}  {mission['status']}, round {mission['round']},"
            f" {mission['turns']} turns, {mission['usd']} USD"
        )
    for mail in document["mail"]:
        yield f"  mail {mail['outbound']} ({mail['origin']})  {mail['status']}"
    if document["may_resume"]:
        yield f"  `pipeline retry {pipeline.pk}` goes on where its command may be repeated"

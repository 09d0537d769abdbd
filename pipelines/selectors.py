"""Reads of pipelines: what a token may see, and what the console lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Max, Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from guards import selectors as guards
from guards.exceptions import CountersignError, NotFound
from guards.models import ApiToken
from mail import selectors as mail
from mail.models import Message
from pipelines import covering, reasons, schema
from pipelines.models import Command, Mission, Pipeline, Rule, RuleHit, Stage
from pipelines.services import verification
from pipelines.types import Budget, Explanation

#: How long a mission that keeps a write set may be quiet before it is called stuck.
IDLE = timedelta(days=1)


def pipelines(*, status: str | None = None) -> QuerySet[Pipeline]:
    """Every pipeline, or those of one status, newest first."""
    rows = Pipeline.objects.select_related("identity").order_by("-created_at")
    return rows if status is None else rows.filter(status=status)


def pipelines_for(token: ApiToken, *, status: str | None = None) -> QuerySet[Pipeline]:
    """The pipelines of the token's identity; all of them where it belongs to none."""
    return pipelines(status=status).filter(identity__in=guards.identities_for(token))


def pipeline_for(token: ApiToken, pipeline_id: UUID) -> Pipeline:
    """One pipeline that the token may see; NotFound for any other."""
    found = pipelines_for(token).filter(pk=pipeline_id).first()
    if found is None:
        raise NotFound(f"there is no pipeline {pipeline_id} for this token", field="pipeline_id")
    return found


def stages_of(pipeline: Pipeline) -> QuerySet[Stage]:
    """A pipeline's stages in their order."""
    return Stage.objects.filter(pipeline=pipeline).order_by("position")


def missions_for(token: ApiToken) -> QuerySet[Mission]:
    """The missions of the pipelines that a token may see."""
    return Mission.objects.filter(pipeline__in=pipelines_for(token)).select_related("stage")


def mission_for(token: ApiToken, mission_id: UUID) -> Mission:
    """One mission that the token may see; NotFound for any other."""
    found = missions_for(token).filter(pk=mission_id).first()
    if found is None:
        raise NotFound(f"there is no mission {mission_id} for this token", field="mission_id")
    return found


def covered(pipeline_ids: Iterable[UUID], *, for_person: bool = False) -> frozenset[UUID]:
    """Which of these pipelines work for mail that may not be read: what came of it is covered too.

    `for_person`: what an operator has revealed stays open to people.
    """
    wanted = frozenset(pipeline_ids)
    messages = Message.objects.filter(pipeline__in=wanted).select_related(
        "account__identity", "pipeline"
    )
    return frozenset(
        row.message.pipeline.pk
        for row in mail.readable(messages)
        if not row.readable and not (for_person and row.message.revealed_at is not None)
    )


def is_covered(pipeline_id: UUID, *, for_person: bool = False) -> bool:
    """Whether this one does."""
    return pipeline_id in covered([pipeline_id], for_person=for_person)


def shown_pipelines(rows: Iterable[Pipeline], *, for_person: bool = False) -> list[Pipeline]:
    """These as they may be shown now; not to be saved."""
    listed = list(rows)
    hidden = covered([row.pk for row in listed], for_person=for_person)
    return [covering.pipeline(row) if row.pk in hidden else row for row in listed]


def shown_stages(rows: Iterable[Stage], *, for_person: bool = False) -> list[Stage]:
    """These as they may be shown now; not to be saved."""
    listed = list(rows)
    hidden = covered([row.pipeline_id for row in listed], for_person=for_person)
    return [covering.stage(row) if row.pipeline_id in hidden else row for row in listed]


def shown_missions(rows: Iterable[Mission], *, for_person: bool = False) -> list[Mission]:
    """These as they may be shown now; not to be saved."""
    listed = list(rows)
    hidden = covered([row.pipeline_id for row in listed], for_person=for_person)
    return [covering.mission(row) if row.pipeline_id in hidden else row for row in listed]


def missions_of(pipeline: Pipeline) -> QuerySet[Mission]:
    """A pipeline's missions in the order in which they were opened."""
    return Mission.objects.filter(pipeline=pipeline).select_related("stage").order_by("opened_at")


def stuck_missions() -> QuerySet[Mission]:
    """Open missions that hold others up, oldest first: for *Needs you*, and for `release`.

    Those whose stage nobody works on or waits for any more, and those that keep a write set while
    nothing has happened to them for a day.
    """
    working = Stage.HELD | {Stage.Status.WAITING_APPROVAL}
    idle = Q(last_event__lt=Now() - IDLE) & ~Q(write_set=[])
    return (
        Mission.objects.filter(status=Mission.Status.OPEN, released_at=None)
        .annotate(last_event=Max("events__at"))
        .filter(~Q(stage__status__in=working) | idle)
        .select_related("stage", "pipeline__identity")
        .order_by("opened_at")
    )


def commands() -> QuerySet[Command]:
    """Every command, those that never run included."""
    return Command.objects.order_by("name")


def signed_claude_commands() -> QuerySet[Command]:
    """The commands that would start a worker: those whose signature held when it was looked at."""
    return Command.objects.filter(
        runner="claude", signature_state=Command.SignatureState.OK
    ).order_by("name")


def claude_budgets() -> list[tuple[str, float]]:
    """What one run of each signed claude command may cost, in US dollars."""
    found = []
    for name, document in signed_claude_commands().values_list("name", "document"):
        budget = document.get("budget")
        usd = budget.get("max_usd") if isinstance(budget, Mapping) else None
        found.append((name, float(usd) if isinstance(usd, int | float) else Budget().max_usd))
    return found


def rules_for(token: ApiToken) -> QuerySet[Rule]:
    """The rules that may plan for the token's identity, in the order in which they are asked."""
    rules = Rule.objects.select_related("identity").order_by("position", "id")
    if guards.sees_everything(token):
        return rules
    for_all = rules.filter(identity__isnull=True)
    if token.identity_id is None:
        return for_all
    return for_all | rules.filter(identity_id=token.identity_id)


def command_schema() -> dict[str, Any]:
    """The published form of a command."""
    return schema.published()


def hits_by_day(rule: Rule, *, days: int = 30) -> list[tuple[date, int]]:
    """How many messages a rule planned on each of the last days (UTC), today last, zeros too."""
    today = timezone.now().astimezone(UTC).date()
    first = today - timedelta(days=days - 1)
    counted = dict(RuleHit.objects.filter(rule=rule, day__gte=first).values_list("day", "hits"))
    dates = (first + timedelta(days=number) for number in range(days))
    return [(day, counted.get(day, 0)) for day in dates]


def why_no_pipeline(message: Message) -> Explanation:
    """Why a message started no work, from what was decided when it came and was looked at.

    `started` where it did. What it would start now is a dry run's to say.
    """
    pipeline = Pipeline.objects.filter(message=message).first()
    if pipeline is not None and not pipeline.refused_rule:
        return Explanation(reasons.STARTED, *reasons.reason(reasons.STARTED), started=True)
    if pipeline is not None:
        sentence, next_step = reasons.reason(pipeline.refused_rule)
        told = f"{sentence} ({pipeline.error})" if pipeline.error else sentence
        return Explanation(pipeline.refused_rule, told, next_step)
    is_due = message.execution == Message.Execution.DUE
    rule = reasons.WAITING if is_due else message.rule
    return Explanation(rule, *reasons.reason(rule))


def why_not_runnable(command: Command) -> str:
    """Why a command would not run now, in one sentence; "" when it would. Runs gpg at most once."""
    try:
        verification.runnable(command)
    except CountersignError as error:
        return f"{error.rule}: {error.detail}" if error.rule else error.detail
    return ""


def interrupted() -> QuerySet[Pipeline]:
    """Pipelines that a crash ended, newest first: for *Needs you*."""
    return (
        Pipeline.objects.filter(status=Pipeline.Status.INTERRUPTED)
        .select_related("identity", "message")
        .order_by("-finished_at")
    )

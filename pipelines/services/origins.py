"""Which outgoing message answers for which run of a pipeline, and the way back."""

from __future__ import annotations

from uuid import UUID

from guards.types import Subject
from mail.models import Outbound
from pipelines.models import Pipeline, Stage
from pipelines.services.intake import REPLY

#: A pipeline's own answer, what took its place, and the answers of runs that an operator asked for.
PIPELINE = "pipelines.pipeline"
STAGE = "pipelines.stage"
RESUMED = "pipelines.resumption"


def of_answer(pipeline_id: UUID, resumptions: int) -> Subject:
    """What the answer of this run is named after."""
    if resumptions:
        return Subject(RESUMED, f"{pipeline_id}.{resumptions}")
    return Subject(PIPELINE, str(pipeline_id))


def of_successor(pipeline: Pipeline) -> Subject:
    """What the message is named after that takes the place of an answer that was given up."""
    if pipeline.resumptions:
        return Subject(RESUMED, f"{pipeline.pk}.{pipeline.resumptions}.notice")
    stage = Stage.objects.get(pipeline_id=pipeline.pk, command=REPLY)
    return Subject(STAGE, str(stage.pk))


def pipeline_of(message: Outbound) -> Pipeline | None:
    """The pipeline that this message answers for now; None for any other, and for an earlier run's.

    Locked, before any of its stages: whoever renews the lease meanwhile goes the same way.
    """
    locked = Pipeline.objects.select_for_update(of=("self",))
    if message.origin_type == PIPELINE:
        return locked.filter(pk=message.origin_id, resumptions=0).first()
    if message.origin_type == STAGE:
        return locked.filter(stages__pk=message.origin_id, resumptions=0).first()
    if message.origin_type == RESUMED:
        pipeline_id, resumptions = message.origin_id.split(".")[:2]
        return locked.filter(pk=pipeline_id, resumptions=int(resumptions)).first()
    return None
